package main

import "time"

// Config is the command line.
type Config struct {
	Rounds   int           `default:"3" env:"ROUNDS" help:"Rounds; every value is a median over them."`
	Scale    float64       `default:"1" env:"SCALE" help:"Factor on the length of every measurement."`
	Duration time.Duration `default:"2500ms" help:"Length of a measurement at scale 1."`
	Nodes    []int         `default:"1,3" help:"Sizes of the systems: 1, 3 or both."`
	Work     []string      `placeholder:"NAME,…" help:"Only these works (default: all)."`

	Out    string `env:"OUT" placeholder:"FILE" help:"Also write the report there."`
	JSON   string `name:"json" placeholder:"FILE" help:"Write every measurement there, one JSON object a line."`
	Update string `placeholder:"FILE" help:"Replace the report between the markers of this document."`

	Root         string   `default:"." type:"existingdir" help:"Directory of the module."`
	Dir          string   `placeholder:"DIR" help:"Where servers keep their files, for the time of the run (default: bin of the module)."`
	HoldfastArgs []string `name:"holdfast-arg" sep:"none" placeholder:"FLAG" help:"Flag of holdfast serve, repeatable."`
}
