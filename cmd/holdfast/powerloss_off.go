//go:build !powerloss

package main

import "github.com/holdfast-mq/holdfast/storage"

// fileSystem is what a node keeps its data on; nil = the operating system's.
func fileSystem(string) (storage.FS, error) { return nil, nil } //nolint:ireturn,nilnil // one of two
