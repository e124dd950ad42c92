module github.com/amqpflow/amqpflow/interop

go 1.26

replace github.com/amqpflow/amqpflow => ../

require (
	github.com/amqpflow/amqpflow v0.0.0-00010101000000-000000000000
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/Azure/go-amqp v1.7.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)
