// The peer: kube-apiserver's own flow control under the load of `cargo xtask bench dispatch`.
//
// It reads a plan (JSON, standard input), configures the flow-control package of k8s.io/apiserver with the plan's
// objects, calls its public Handle from as many goroutines as the plan has clients, and prints what that cost (JSON,
// standard output). The request that executes does nothing. bench/README.md says what the numbers mean.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	objects "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/apiserver/pkg/util/flowcontrol/metrics"
	fcrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

// A plan says what to measure; the bench writes it.
type plan struct {
	// Seats of the server.
	ServerLimit int `json:"server_limit"`
	// The objects in force, complete with their status, so that nothing is written while requests run.
	Schemas []*flowcontrolv1.FlowSchema                 `json:"schemas"`
	Levels  []*flowcontrolv1.PriorityLevelConfiguration `json:"levels"`
	// The level to which all requests must come.
	Level string `json:"level"`
	// Users are dealt to the clients; lines follow one another.
	Users  []string `json:"users"`
	Groups []string `json:"groups"`
	Lines  []line   `json:"lines"`
	// Goroutines, each with one request at a time.
	Clients int `json:"clients"`
	// GOMAXPROCS.
	Threads int `json:"threads"`
	// How long to measure, in all.
	Seconds float64 `json:"seconds"`
}

// A line is a request line and the width that its request has. The estimate is not this program's business: making it
// would cost Go more than it costs usher.
type line struct {
	Method string `json:"method"`
	Target string `json:"target"`
	Seats  uint64 `json:"seats"`
}

// A load calls Handle.
type load struct {
	control flowcontrol.Interface
	context context.Context
	level   string
	users   []user.Info
	infos   []*request.RequestInfo
	widths  []uint64
}

// How long the controller may take to take up its objects.
const configuredWithin = 30 * time.Second

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

func run() error {
	var p plan
	if err := json.NewDecoder(os.Stdin).Decode(&p); err != nil {
		return fmt.Errorf("the plan: %w", err)
	}
	runtime.GOMAXPROCS(p.Threads)
	// A request of a server can be cancelled; with a context that cannot be, Handle would have less to do.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	load, err := prepare(ctx, &p)
	if err != nil {
		return err
	}
	result, err := load.measure(p.Clients, time.Duration(p.Seconds*float64(time.Second)))
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// prepare returns when requests are classified by the plan's objects.
func prepare(ctx context.Context, p *plan) (*load, error) {
	// As in a server: with counts.
	metrics.Register()
	var all []objects.Object
	for _, schema := range p.Schemas {
		all = append(all, schema)
	}
	for _, level := range p.Levels {
		all = append(all, level)
	}
	client := fake.NewClientset(all...)
	factory := informers.NewSharedInformerFactory(client, 0)
	control := flowcontrol.New(factory, client.FlowcontrolV1(), p.ServerLimit)
	factory.Start(ctx.Done())
	go func() { _ = control.Run(ctx.Done()) }()

	l := &load{control: control, context: ctx, level: p.Level}
	for _, name := range p.Users {
		l.users = append(l.users, &user.DefaultInfo{Name: name, Groups: p.Groups})
	}
	resolver := request.RequestInfoFactory{
		APIPrefixes:          sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api"),
	}
	for _, line := range p.Lines {
		httpRequest, err := http.NewRequestWithContext(ctx, line.Method, line.Target, nil)
		if err != nil {
			return nil, err
		}
		info, err := resolver.NewRequestInfo(httpRequest)
		if err != nil {
			return nil, err
		}
		l.infos, l.widths = append(l.infos, info), append(l.widths, line.Seats)
	}
	return l, l.waitUntilConfigured()
}

func (l *load) waitUntilConfigured() error {
	for deadline := time.Now().Add(configuredWithin); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		var level string
		note := func(_ *flowcontrolv1.FlowSchema, found *flowcontrolv1.PriorityLevelConfiguration, _ string) {
			level = found.Name
		}
		one := func() fcrequest.WorkEstimate { return fcrequest.WorkEstimate{InitialSeats: 1} }
		digest := flowcontrol.RequestDigest{RequestInfo: l.infos[0], User: l.users[0]}
		l.control.Handle(l.context, digest, note, one, func(bool) {}, func() {})
		if level == l.level {
			return nil
		}
	}
	return errors.New("requests did not come to level " + l.level)
}
