package node

import (
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	promcollectors "github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/holdfast-mq/holdfast/replication"
)

// metrics returns the registry behind /metrics.
func (n *Node) metrics() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		promcollectors.NewGoCollector(),
		promcollectors.NewProcessCollector(promcollectors.ProcessCollectorOpts{}),
		collector{n},
	)
	return r
}

// collector reads every number when it is asked: nothing is counted for it.
type collector struct{ n *Node }

// Describe implements prometheus.Collector: the set of series depends on the groups and peers, so it is not
// checked.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	e := emitter{out: out}
	e.of("version", Version, "node", c.n.cfg.NodeID).gauge("build_info", "Always 1.", 1)
	e.gauge("up_seconds", "Time since this node started.", time.Since(c.n.started).Seconds())
	e.gauge("ready", "Whether this node serves.", truth(len(c.n.readiness()) == 0))
	for _, g := range c.n.host.Groups() {
		e := e.of("group", strconv.FormatUint(uint64(g.ID()), 10))
		collectDamage(e, g)
		collectGroup(e, g)
		collectLog(e, g)
		collectStore(e, g)
		collectClock(e, g)
	}
	collectDisk(e, c.n.disk.Status())
	c.collectIngress(e)
	c.collectTransport(e)
}

// emitter sends series whose labels are pairs of name and value.
type emitter struct {
	out    chan<- prometheus.Metric
	labels []string // of every series
}

// of returns an emitter whose series have further labels.
func (e emitter) of(labels ...string) emitter {
	return emitter{e.out, slices.Concat(e.labels, labels)}
}

func (e emitter) gauge(name, help string, v float64) { e.send(name, help, prometheus.GaugeValue, v) }

func (e emitter) counter(name, help string, v float64) {
	e.send(name, help, prometheus.CounterValue, v)
}

// count sends a counter of events.
func (e emitter) count(name, help string, v *atomic.Uint64) { e.counter(name, help, float64(v.Load())) }

func (e emitter) send(name, help string, kind prometheus.ValueType, v float64) {
	var names, values []string
	for i := 0; i+1 < len(e.labels); i += 2 {
		names, values = append(names, e.labels[i]), append(values, e.labels[i+1])
	}
	desc := prometheus.NewDesc("holdfast_"+name, help, names, nil)
	e.out <- prometheus.MustNewConstMetric(desc, kind, v, values...)
}

func truth(b bool) float64 { //nolint:revive // flag-parameter: it is the value
	if b {
		return 1
	}
	return 0
}

func collectDamage(e emitter, g *replication.Group) {
	d := g.Damage()
	e.gauge("group_damaged", "Whether the group's local data is damaged and not replaced yet.", truth(d != nil))
	if d != nil {
		e.of("file", d.File).gauge("damage_info", "Always 1, for a damaged group.", 1)
	}
}

func collectGroup(e emitter, g *replication.Group) {
	st := g.Status()
	voters := 0
	for _, m := range st.Members {
		if m.Voter {
			voters++
		}
	}
	e.gauge("raft_leader", "Whether this node leads the group.", truth(st.Role == replication.RoleLeader))
	e.gauge("raft_replicating", "Whether the group works, as far as this node sees.", truth(st.Replicating))
	e.gauge("raft_term", "Raft term.", float64(st.Term))
	e.gauge("raft_commit_index", "Highest index known to be committed.", float64(st.Commit))
	e.gauge("raft_applied_index", "Last index applied here.", float64(st.Applied))
	e.gauge("raft_last_log_index", "Last index in the log here.", float64(st.LastLog))
	e.gauge("raft_members", "Replicas of the group.", float64(len(st.Members)))
	e.gauge("raft_voters", "Those with a vote.", float64(voters))
	e.counter("raft_instances_total", "Raft instances created for the replica.", float64(st.Instances))
	for _, p := range g.Progress() {
		e := e.of("replica", p.Server)
		e.gauge("raft_peer_lag_entries", "Entries another replica has not acknowledged, seen by the leader.",
			float64(st.LastLog-min(p.Match, st.LastLog)))
		if p.Contact >= 0 {
			e.gauge("raft_peer_contact_seconds", "Time since another replica answered the leader.",
				p.Contact.Seconds())
		}
	}
}

func collectLog(e emitter, g *replication.Group) {
	s := g.LogStats()
	e.counter("log_fsyncs_total", "Data syncs of log segments.", float64(s.Syncs))
	e.counter("log_fsync_seconds_total", "Time spent in them.", s.SyncTime.Seconds())
	e.gauge("log_fsync_last_seconds", "Duration of the last one.", s.LastSync.Seconds())
	e.gauge("log_fsync_max_seconds", "Duration of the longest one.", s.MaxSync.Seconds())
	e.counter("log_entries_total", "Entries written.", float64(s.Entries))
	e.counter("log_batches_total", "Batches written, one fsync each.", float64(s.Batches))
	e.counter("log_written_bytes_total", "Bytes of batches.", float64(s.BatchBytes))
	e.gauge("log_live_bytes", "Bytes of log in use.", float64(s.LiveBytes))
	e.gauge("log_disk_bytes", "Size of the log's files, spares included.", float64(s.DiskBytes))
}

func collectStore(e emitter, g *replication.Group) {
	s := g.Reader().Stats()
	e.gauge("store_disk_bytes", "Size of the state's files.", float64(s.DiskBytes))
	e.gauge("store_memtable_bytes", "State not written to tables yet.", float64(s.MemTableBytes))
	e.gauge("store_compaction_debt_bytes", "Bytes that compactions have to move.", float64(s.CompactionDebt))
	e.gauge("store_read_amplification", "Tables a read may look at.", float64(s.ReadAmp))
	e.counter("store_flushes_total", "Flushes of memtables.", float64(s.Flushes))
	e.counter("store_compactions_total", "Compactions.", float64(s.Compactions))
}

func (c collector) collectIngress(e emitter) {
	s := c.n.server.Stats()
	e.gauge("clients", "Connections of the hub, our own included.", float64(c.n.hub.NumClients()))
	e.counter("publishes_total", "Publishes that came to a leader here.", float64(s.Publishes))
	e.counter("publish_answers_total", "PubAcks and errors sent.", float64(s.Answers))
	e.counter("deliveries_total", "Messages sent to consumers.", float64(s.Deliveries))
	e.counter("acks_total", "Acknowledgements of consumers.", float64(s.Acks))
	e.counter("pulls_total", "Pull requests of consumers.", float64(s.Pulls))
	e.counter("api_requests_total", "API requests answered.", float64(s.Requests))
	e.counter("api_errors_total", "Those answered with an error.", float64(s.Errors))
	e.counter("refused_total", "Requests refused because a queue was full.", float64(s.Refused))
	e.gauge("held_requests", "API requests that wait for a leader.", float64(s.Held))
	e.gauge("held_bytes", "Requests that wait for the groups led here.", float64(s.QueuedBytes))
	_, down := c.n.server.LinkDown()
	e.gauge("hub_link_up", "Whether every account's link to the hub is up.", truth(!down))
}

func (c collector) collectTransport(e emitter) {
	k := c.n.host.Transport().Counters()
	sent, received := e.of("direction", "sent"), e.of("direction", "received")
	sent.count("transport_frames_total", "Frames between nodes.", &k.FramesSent)
	received.count("transport_frames_total", "Frames between nodes.", &k.FramesReceived)
	sent.count("transport_bytes_total", "Bytes between nodes.", &k.BytesSent)
	received.count("transport_bytes_total", "Bytes between nodes.", &k.BytesReceived)
	sent.count("transport_snapshots_total", "Snapshots between nodes.", &k.SnapshotsSent)
	received.count("transport_snapshots_total", "Snapshots between nodes.", &k.SnapshotsReceived)
	e.count("transport_snapshots_resumed_total", "Transfers of snapshots that went on where they were cut.",
		&k.SnapshotsResumed)
	e.count("transport_dial_errors_total", "Connections to nodes that failed.", &k.DialErrors)
	e.count("transport_handshakes_refused_total", "Connections refused by this node.", &k.HandshakeRefused)
	e.count("transport_twins_refused_total", "Connections of a second process of a node's id, refused here.",
		&k.TwinsRefused)
	e.count("transport_protocol_errors_total", "Connections closed for malformed frames.", &k.ProtocolErrors)
	e.count("transport_timeouts_total", "Requests to nodes without an answer in time.", &k.Timeouts)
	e.count("transport_stalled_total", "Appends not sent because a log write hangs.", &k.Stalled)
	e.count("transport_votes_embargoed_total", "Votes not sent or answered.", &k.VotesEmbargoed)
}
