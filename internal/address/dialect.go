package address

import (
	"fmt"
	"strings"
)

// Dialect is the way in which a kind of peer names its nodes.
type Dialect uint8

const (
	// Auto is not known yet: Detect decides once the peer's OPEN is there.
	Auto Dialect = iota
	// Generic is any peer that tells queues and topics by capability.
	Generic
	// Artemis is Apache ActiveMQ Artemis.
	Artemis
	// RabbitMQ is RabbitMQ 4 with its version 2 addresses.
	RabbitMQ
	// ServiceBus is Azure Service Bus: entity names as they are.
	ServiceBus
)

var dialectNames = [...]string{"auto", "generic", "artemis", "rabbitmq", "servicebus"}

// String returns the dialect's name in lower case.
func (d Dialect) String() string {
	if int(d) < len(dialectNames) {
		return dialectNames[d]
	}
	return "unknown"
}

// Valid reports whether d is one of the constants.
func (d Dialect) Valid() bool { return int(d) < len(dialectNames) }

// Detect tells the dialect from the product that the peer's OPEN names and
// from the name of its host. What it does not know is Generic.
func Detect(product, host string) Dialect {
	switch {
	case strings.EqualFold(product, "RabbitMQ"):
		return RabbitMQ
	case strings.EqualFold(product, "apache-activemq-artemis"):
		return Artemis
	case strings.HasSuffix(strings.ToLower(host), ".servicebus.windows.net"):
		return ServiceBus
	default:
		return Generic
	}
}

// RefusesGently reports whether a peer is known to refuse an attach without
// ending the session, and with it every other link on it: RabbitMQ from 4.3
// on, Artemis and Service Bus.
func RefusesGently(d Dialect, version string) bool {
	switch d {
	case Artemis, ServiceBus:
		return true
	case RabbitMQ:
		return isRabbitMQ43(d, version)
	default:
		return false
	}
}

// HoldsRetries reports whether a peer is known to keep a delivery that was
// modified with x-opt-delivery-time until then: RabbitMQ from 4.3 on, in quorum
// queues.
func HoldsRetries(d Dialect, version string) bool { return isRabbitMQ43(d, version) }

func isRabbitMQ43(d Dialect, version string) bool {
	var major, minor int
	n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor)
	return d == RabbitMQ && n == 2 && (major > 4 || major == 4 && minor >= 3)
}
