//go:build tools

// Package tools names the program that the tests need, so that go.mod and go.sum pin it and what it is made of.
package tools

import _ "github.com/summerwind/h2spec/cmd/h2spec"
