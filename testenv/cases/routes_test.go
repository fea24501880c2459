package cases

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// deep is message i of a sender: a subject of many tokens that also sets where it ends, and a body that looks like
// lines of the protocol.
func deep(sender, i int) (subject, body string) {
	r := rand.New(rand.NewPCG(uint64(sender), uint64(i)))
	subject = fmt.Sprintf("deep.%d.%s%d", sender, strings.Repeat("t@.", r.IntN(80)), i)
	return subject, strings.Repeat(fmt.Sprintf("\r\nRMSG x %d-%d\r\n", sender, i), r.IntN(40))
}

// Under load, over routes, with deep subjects and deep inboxes, every message, ack reply and answer is whole, and
// its own (https://github.com/nats-io/nats-server/issues/7842).
func deepSubjectsDoNotMix(t *testing.T, e *env) {
	const each = 100
	c := e.client(t, 0)
	s := c.stream(&jetstream.StreamConfig{
		Name: "DEEP", Subjects: []string{"deep.>"}, Retention: jetstream.WorkQueuePolicy, Replicas: 3,
	})
	var wg sync.WaitGroup
	defer wg.Wait()
	for sender := range e.Nodes {
		out, in := e.client(t, sender), e.client(t, (sender+1)%len(e.Nodes))
		cons := in.consumer(s, &jetstream.ConsumerConfig{
			Durable: fmt.Sprintf("%d-%s", sender, strings.Repeat("long", 20)), AckPolicy: jetstream.AckExplicitPolicy,
			FilterSubject: fmt.Sprintf("deep.%d.>", sender), MaxAckPending: each,
		})
		wg.Go(func() {
			for i := range each {
				subject, body := deep(sender, i)
				if _, err := out.js.PublishAsync(subject, []byte(body)); err != nil {
					t.Error(err)
				}
			}
			<-out.js.PublishAsyncComplete()
		})
		wg.Go(func() {
			batch, err := cons.Fetch(each, jetstream.FetchMaxWait(soon))
			if err != nil {
				t.Error(err)
				return
			}
			i := 0
			for m := range batch.Messages() {
				subject, body := deep(sender, i)
				meta, err := m.Metadata()
				if err != nil || meta.Sequence.Consumer != uint64(i+1) || meta.NumDelivered != 1 || meta.Stream != "DEEP" ||
					m.Subject() != subject || string(m.Data()) != body {
					t.Errorf("sender %d, message %d: %s, %q, %+v, %v; want %s, %q", sender, i, m.Subject(), m.Data(), meta, err,
						subject, body)
					return
				}
				if err := m.DoubleAck(bounded(t)); err != nil {
					t.Errorf("ack of message %d of sender %d: %v", i, sender, err)
					return
				}
				i++
			}
			if i != each || batch.Error() != nil {
				t.Errorf("sender %d: %d messages, %v", sender, i, batch.Error())
			}
		})
	}
	wg.Wait()
	if st := c.state(s); st.Msgs != 0 || st.LastSeq != uint64(each*len(e.Nodes)) {
		t.Errorf("%+v, want %d messages, all of them done", st, each*len(e.Nodes))
	}
}
