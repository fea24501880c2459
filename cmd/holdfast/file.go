package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"gopkg.in/yaml.v3"
)

// readSettings reads a configuration file: a mapping from the names of settings, which must be among known,
// to a value or a list of values. It returns them as they would be given on the command line.
func readSettings(path string, known []string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	out, err := parseSettings(f, known)
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return out, errors.Join(err, f.Close())
}

func parseSettings(r io.Reader, known []string) (map[string]string, error) {
	dec := yaml.NewDecoder(r)
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return map[string]string{}, nil // empty, or comments only
	} else if err != nil {
		return nil, err
	}
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one YAML document; give one")
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: give settings as name: value", root.Line)
	}
	out := make(map[string]string)
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		if !slices.Contains(known, key.Value) {
			return nil, fmt.Errorf("line %d: unknown setting %q; accepted are %s",
				key.Line, key.Value, strings.Join(known, ", "))
		}
		if _, twice := out[key.Value]; twice {
			return nil, fmt.Errorf("line %d: %q is given twice; give it once", key.Line, key.Value)
		}
		text, err := settingText(key.Value, value)
		if err != nil {
			return nil, err
		}
		out[key.Value] = text
	}
	return out, nil
}

// settingText writes a value as on the command line: lists with commas, the mapping of peers as id=address.
func settingText(key string, value *yaml.Node) (string, error) {
	var parts []string
	switch {
	case value.Kind == yaml.ScalarNode:
		return value.Value, nil
	case value.Kind == yaml.SequenceNode:
		for _, v := range value.Content {
			if v.Kind != yaml.ScalarNode {
				return "", fmt.Errorf("line %d: %q holds something else than values; give a list of values",
					v.Line, key)
			}
			parts = append(parts, v.Value)
		}
		return strings.Join(parts, ","), nil
	case value.Kind == yaml.MappingNode && key == "peers":
		for i := 0; i+1 < len(value.Content); i += 2 {
			id, addr := value.Content[i], value.Content[i+1]
			if addr.Kind != yaml.ScalarNode {
				return "", fmt.Errorf("line %d: peers: give id: host:port for each node", addr.Line)
			}
			parts = append(parts, id.Value+"="+addr.Value)
		}
		return strings.Join(parts, ","), nil
	}
	return "", fmt.Errorf("line %d: %q is neither a value nor a list of values", value.Line, key)
}

// fileResolver makes kong take settings from a file, where neither flag nor environment gives them.
func fileResolver(path string, flags []*kong.Flag) (kong.ResolverFunc, error) {
	var known []string
	for _, f := range flags {
		if f.Name != "help" && f.Name != "config" {
			known = append(known, f.Name)
		}
	}
	slices.Sort(known)
	settings, err := readSettings(path, known)
	if err != nil {
		return nil, err
	}
	return func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		for _, name := range flag.Envs {
			if _, given := os.LookupEnv(name); given {
				return nil, nil //nolint:nilnil // kong's word for no opinion
			}
		}
		if text, given := settings[flag.Name]; given {
			return text, nil
		}
		return nil, nil //nolint:nilnil // kong's word for no opinion
	}, nil
}
