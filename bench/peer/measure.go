package main

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	fcrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
)

// A result is what the bench reads.
type result struct {
	// Decisions measured together, and how long they took on the wall, all goroutines together.
	Decisions uint64 `json:"decisions"`
	Nanos     int64  `json:"nanos"`
	// Of those decisions, from runtime.MemStats.
	Allocations uint64 `json:"allocations"`
	// Requests in queues when one of those decided upon begins to execute, on average.
	Waiting float64 `json:"waiting"`
	// Decisions measured one by one, in ns. See client.
	Singles []int64 `json:"singles"`
}

const (
	// Decisions before anything is measured.
	warm = 2_000
	// Bounds of what is measured, whatever the time allows.
	decisionsMin = 2_000
	decisionsMax = 200_000
)

func (l *load) measure(clients int, span time.Duration) (*result, error) {
	began := time.Now()
	if err := l.drive(clients, warm, nil, nil); err != nil {
		return nil, err
	}
	each := time.Since(began) / warm
	wanted := uint64(min(max(span/2/max(each, 1), decisionsMin), decisionsMax))

	var r result
	if err := l.drive(clients, wanted, &r, nil); err != nil {
		return nil, err
	}
	singles := make([][]int64, clients)
	for i := range singles {
		singles[i] = make([]int64, 0, 2*int(wanted)/clients+1000)
	}
	if err := l.drive(clients, wanted, nil, singles); err != nil {
		return nil, err
	}
	for _, some := range singles {
		r.Singles = append(r.Singles, some...)
	}
	return &r, nil
}

// drive makes wanted decisions after some that only bring the level into its state. What they cost together goes to
// together, each of them to singles: one or the other, as reading the clock costs something too.
func (l *load) drive(clients int, wanted uint64, together *result, singles [][]int64) error {
	first := uint64(warm + clients)
	last := first + wanted
	var next, misplaced atomic.Uint64
	var waiting, waited atomic.Int64
	var before, after runtime.MemStats
	var began time.Time
	mark := func(n uint64) {
		switch n {
		case first:
			runtime.ReadMemStats(&before)
			began = time.Now()
		case last:
			together.Nanos = time.Since(began).Nanoseconds()
			runtime.ReadMemStats(&after)
		}
	}
	var group sync.WaitGroup
	for id := range clients {
		group.Go(func() {
			c := client{load: l, user: id % len(l.users), waiting: &waiting, waited: &waited}
			c.waits = clients > runtime.GOMAXPROCS(0)
			if singles != nil {
				c.singles = &singles[id]
			}
			// Those after the last keep the level as it is until the last is done.
			for n := next.Add(1); n < last+uint64(clients); n = next.Add(1) {
				if together != nil {
					mark(n)
				}
				c.counted = n >= first && n < last
				c.measured = c.counted && singles != nil
				if !c.handle(l.infos[n%uint64(len(l.infos))], l.widths[n%uint64(len(l.infos))]) {
					misplaced.Add(1)
				}
				// As the users are dealt to the clients: id, id+clients, id+2*clients …
				if c.user += clients; c.user >= len(l.users) {
					c.user = id % len(l.users)
				}
			}
		})
	}
	group.Wait()
	if n := misplaced.Load(); n > 0 {
		return fmt.Errorf("%d requests did not run at level %s", n, l.level)
	}
	if together != nil {
		together.Decisions = wanted
		together.Allocations = after.Mallocs - before.Mallocs
		together.Waiting = float64(waited.Load()) / float64(wanted)
	}
	return nil
}

// A client has one request at a time.
//
// What it measures of a single decision is Handle as a whole where nobody has to wait. Where all do, it is the arrival,
// up to the place in a queue, and the end, from execution to the return, with the dispatch of the next one: waiting and
// changing between goroutines are not in it. They are in the time that many decisions take together.
type client struct {
	load     *load
	user     int
	waits    bool
	measured bool
	singles  *[]int64
	// All clients' requests in queues now, and the sum of that over the beginnings of execution that are counted.
	waiting, waited *atomic.Int64
	counted         bool
	// When the part that is measured began, and what is complete of it.
	began time.Time
	spent time.Duration
}

// handle reports whether the request ran, and at the right level.
func (c *client) handle(info *request.RequestInfo, width uint64) bool {
	digest := flowcontrol.RequestDigest{RequestInfo: info, User: c.load.users[c.user]}
	placed, executed := false, false
	note := func(_ *flowcontrolv1.FlowSchema, level *flowcontrolv1.PriorityLevelConfiguration, _ string) {
		placed = level.Name == c.load.level
	}
	estimate := func() fcrequest.WorkEstimate { return fcrequest.WorkEstimate{InitialSeats: width} }
	queue := func(in bool) {
		if !in {
			// Called by whoever dispatches it.
			c.waiting.Add(-1)
			return
		}
		c.waiting.Add(1)
		if c.waits {
			c.stop()
		}
	}
	execute := func() {
		executed = true
		if c.counted {
			c.waited.Add(c.waiting.Load())
		}
		if c.waits {
			// Execution takes time. Without this the goroutines would stand at the level's mutex instead of in its queues,
			// half of them and more.
			runtime.Gosched()
			c.start()
		}
	}
	c.spent = 0
	c.start()
	c.load.control.Handle(c.load.context, digest, note, estimate, queue, execute)
	c.stop()
	if c.measured {
		*c.singles = append(*c.singles, c.spent.Nanoseconds())
	}
	return placed && executed
}

func (c *client) start() {
	if c.measured {
		c.began = time.Now()
	}
}

func (c *client) stop() {
	if c.measured {
		c.spent += time.Since(c.began)
	}
}
