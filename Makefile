# Where up.sh and down.sh of the two real brokers are. Without them `make brokers` uses compose.yaml.
AMQPFLOW_BROKERS ?= ../shared/brokers
export AMQPFLOW_BROKERS

# What `make bench` measures against: source, or the amqp:// URL of a broker.
PEER ?= source

.DEFAULT_GOAL := help

.PHONY: help
help: ## List what can be run
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: test
test: ## Every test that needs no broker
	go test ./...

.PHONY: race
race: ## The same under the race detector, in random order
	go test -race -shuffle=on ./...

.PHONY: integration
integration: ## The behaviour suite, the truth table and the examples on both real brokers (see make brokers)
	bash .ci/run examples truth suite

.PHONY: interop
interop: ## Other people's clients, in Python, JavaScript and Java, against amqptest
	bash interop/install.sh
	cd interop && go test ./...

.PHONY: bench
bench: ## Raw go-amqp and amqpflow side by side; PEER=amqp://… for a broker
	cd bench && go run . -peer $(PEER)

.PHONY: chaos
chaos: ## The short battery of faults, on amqptest and on brokers of its own
	bash .ci/run chaos

.PHONY: fuzz
fuzz: ## Every fuzz target for 20,000 inputs
	bash .ci/run fuzz

.PHONY: lint
lint: ## gofmt, go vet, golangci-lint, and go.mod
	bash .ci/run format vet lint tidy

.PHONY: check
check: ## What CI runs, all of it
	bash .ci/run

.PHONY: brokers
brokers: ## Start ActiveMQ Artemis and RabbitMQ and print their URLs
	@if [ -e "$(AMQPFLOW_BROKERS)/up.sh" ]; then bash "$(AMQPFLOW_BROKERS)/up.sh"; else \
		docker compose up -d --wait && \
		echo export AMQPFLOW_ARTEMIS_URL=amqp://artemis:artemis@127.0.0.1:5672 && \
		echo export AMQPFLOW_RABBITMQ_URL=amqp://guest:guest@127.0.0.1:5673; fi
