// Package goamqp pins the client in Go whose own tests are run.
package goamqp

import _ "github.com/rabbitmq/amqp091-go"
