package hub

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/conf"
	"github.com/nats-io/nats-server/v2/server"
)

// JetStream is what the configuration file says about JetStream for the whole server.
type JetStream struct {
	// Configured reports whether the file has a jetstream setting at all.
	Configured bool
	// Enabled is that setting; false without one.
	Enabled bool
	// Domain is jetstream.domain, or empty.
	Domain string
	// Settings is the jetstream block as parsed (values: string, bool, int64, float64, list, block); nil if
	// it is not a block. It may hold keys that mean nothing here, store_dir for example.
	Settings map[string]any
}

// Account is one account the hub serves.
type Account struct {
	// Name of the account. Without accounts in the configuration there is one, named $G.
	Name string
	// JetStream reports whether clients of the account may use JetStream, by nats-server's rules: an
	// account says so by its jetstream key; $G is on if it is the only one; nothing is on if the server's
	// key says disabled.
	JetStream bool
	// Limits is the account's jetstream block as parsed (max_memory, max_store …); nil if none.
	Limits map[string]any
	// Imports are the local subjects of service imports that overlap with $JS.API.> (or the domain's prefix).
	// A request on one of them is answered by the account it is imported from.
	Imports []string
	// MaxPayload is the account's own limit on the size of a message, 0 if it has none.
	MaxPayload int
}

// file is a parsed configuration file.
type file struct {
	path string
	raw  map[string]any  // after strip: what is rendered
	opts *server.Options // nats-server's own reading of the untouched file; never given to a server
	js   JetStream
	accs map[string]accountFacts
}

// accountFacts is what is read from the account's block and not from server.Options.
type accountFacts struct {
	jetStream  bool
	limits     map[string]any
	imports    []string
	maxPayload int
}

// readFile parses the file at path; without one it returns an empty configuration.
func readFile(path string) (*file, error) {
	f := &file{path: path, raw: map[string]any{}, opts: &server.Options{}, accs: map[string]accountFacts{}}
	if path == "" {
		return f, nil
	}
	opts, err := server.ProcessConfigFile(path)
	if err != nil {
		return nil, fileError(path, err)
	}
	f.opts = opts
	if f.raw, err = conf.ParseFileWithChecks(path); err != nil {
		return nil, fileError(path, err)
	}
	if err := f.refuse(); err != nil {
		return nil, err
	}
	f.strip()
	return f, nil
}

// fileError names the file, if nats-server's error does not do so itself.
func fileError(path string, err error) error {
	if strings.Contains(err.Error(), path) {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrConfig, path, err)
}

// refuse names a setting that cannot be supported.
func (f *file) refuse() error {
	o := f.opts
	var reason string
	switch {
	case len(o.TrustedOperators) > 0 || len(o.TrustedKeys) > 0:
		reason = `"operator": JWT mode cannot be used, because service users cannot be added to it; ` +
			`list accounts and users in the file`
	case o.AccountResolver != nil:
		reason = `"resolver": JWT mode cannot be used; list accounts and users in the file`
	case o.MQTT.Port != 0:
		reason = `"mqtt": needs nats-server's own JetStream, which is off`
	case o.LeafNode.Nkey != "":
		reason = `"leafnodes.authorization.nkey": cannot be combined with the user of our own link; use users`
	case o.LeafNode.Port != 0 && o.LeafNode.TLSMap:
		reason = `"leafnodes.tls.verify_and_map": our own link has no certificate to be mapped; use users`
	case o.LeafNode.Account != "" && o.LeafNode.Username == "" && len(o.LeafNode.Users) == 0:
		reason = `"leafnodes.authorization.account": without a user it would bind our own link ` +
			`to that account; use users`
	case o.Gateway.Name != "" && o.SystemAccount == "":
		reason = `"gateway": the leafnode listener of our own link needs a system_account beside it`
	default:
		return nil
	}
	return fmt.Errorf("%w: %s: %s", ErrConfig, f.path, reason)
}

// strip reads and removes the jetstream keys, reads the account facts and makes room for our connections.
func (f *file) strip() {
	if k, v, ok := lookup(f.raw, "jetstream"); ok {
		f.js.Configured = true
		f.js.Enabled, f.js.Settings = enabled(v)
		if _, d, ok := lookup(f.js.Settings, "domain"); ok {
			f.js.Domain, _ = d.(string)
		}
		delete(f.raw, k)
	}
	for name, v := range lookupMap(f.raw, "accounts") {
		acc, ok := plain(v).(map[string]any)
		if !ok {
			continue
		}
		var facts accountFacts
		if k, v, ok := lookup(acc, "jetstream"); ok {
			facts.jetStream, facts.limits = enabled(v)
			delete(acc, k)
		}
		facts.imports = f.apiImports(acc)
		if limits := lookupMap(acc, "limits"); limits != nil {
			if _, v, ok := lookup(limits, "max_payload", "max_pay"); ok {
				n, _ := v.(int64)
				facts.maxPayload = int(n)
			}
			addOne(limits, "max_connections", "max_conn")
			addOne(limits, "max_leafnodes", "max_leafs")
		}
		f.accs[name] = facts
	}
}

// addOne raises a limit, if there is one, by one: our own connection.
func addOne(limits map[string]any, names ...string) {
	if k, v, ok := lookup(limits, names...); ok {
		if n, ok := v.(int64); ok && n >= 0 {
			limits[k] = n + 1
		}
	}
}

// enabled reads the value of a jetstream key as nats-server does: a bool, a word, or a block of settings.
func enabled(v any) (bool, map[string]any) {
	switch x := v.(type) {
	case bool:
		return x, nil
	case string:
		return strings.EqualFold(x, "enabled") || strings.EqualFold(x, "enable"), nil
	case map[string]any:
		block, _ := unwrap(x).(map[string]any)
		if _, e, ok := lookup(block, "enabled", "enable"); ok {
			on, _ := e.(bool)
			return on, block
		}
		return true, block
	default:
		return false, nil
	}
}

// apiImports lists the local subjects of the account's service imports that overlap with the JetStream API.
func (f *file) apiImports(acc map[string]any) []string {
	_, v, _ := lookup(acc, "imports")
	list, _ := v.([]any)
	var out []string
	for _, e := range list {
		entry, _ := plain(e).(map[string]any)
		service := lookupMap(entry, "service")
		if service == nil {
			continue
		}
		_, subject, _ := lookup(service, "subject")
		if _, to, ok := lookup(entry, "to"); ok {
			subject = to
		}
		s, ok := subject.(string)
		if !ok {
			continue
		}
		if overlap(s, "$JS.API.>") || f.js.Domain != "" && overlap(s, "$JS."+f.js.Domain+".API.>") {
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return out
}

// overlap reports whether some subject matches both patterns.
func overlap(a, b string) bool {
	at, bt := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(at), len(bt)) {
		switch {
		case at[i] == ">" || bt[i] == ">":
			return true
		case at[i] != bt[i] && at[i] != "*" && bt[i] != "*":
			return false
		}
	}
	return len(at) == len(bt)
}

// has reports whether the block sets one of names.
func has(m map[string]any, names ...string) bool {
	_, _, ok := lookup(m, names...)
	return ok
}
