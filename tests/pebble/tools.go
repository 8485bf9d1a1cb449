//go:build tools

// Package tools names the programs that the tests need, so that go.mod and go.sum pin them and what they are made of.
package tools

import (
	_ "github.com/letsencrypt/pebble/v2/cmd/pebble"
	_ "github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv"
)
