// Controllers as they are at their busiest, over one HTTP/2 connection of Go's own client: the one that client-go, and
// so every controller, kubelet and kubectl, talks through. They cancel what they no longer want (at once, a
// moment later, in the middle of an answer or of a body of their own), let requests time out, restart their watches all
// together, leave large answers unread. None of that is an attack; a server that ends the connection for it ends
// every other watch on it.
//
//	controllers URL CA CERTIFICATE KEY NAMESPACE
//
// Prints what was done as JSON. Fails if any request failed that nobody had cancelled, or if there had to be a second
// connection.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Requests at once: all that kube-apiserver, and usher like it, lets a connection have, but a few.
const streams = 90

// Between bursts: client-go's own limit on requests lets through less.
const pause = time.Second

type controllers struct {
	client    *http.Client
	base      string
	namespace string
	dialled   atomic.Int64
	answered  atomic.Int64
	cancelled atomic.Int64
	mutex     sync.Mutex
	failures  []string
}

func main() {
	if len(os.Args) != 6 {
		fail("usage: controllers URL CA CERTIFICATE KEY NAMESPACE")
	}
	all, err := connect(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5])
	if err != nil {
		fail(err.Error())
	}
	all.get(context.Background(), "/configmaps?limit=1", io.Discard) // the connection, before many want one
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"reads", all.reads},
		{"cancelled at once", all.cancelledAtOnce},
		{"cancelled some time", all.cancelledSomeTime},
		{"timed out", all.timedOut},
		{"watches restarted", all.watchesRestarted},
		{"watches that end", all.watchesThatEnd},
		{"answers left unread", all.leftUnread},
		{"writes broken off", all.writesBrokenOff},
		{"silence with pings", all.silence},
		{"reads again", all.reads},
	} {
		before := len(all.failures)
		step.do()
		if len(all.failures) > before {
			all.failures[before] = step.name + ": " + all.failures[before]
		}
	}
	all.report()
}

func connect(base, ca, certificate, key, namespace string) (*controllers, error) {
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: no certificate", ca)
	}
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	all := &controllers{base: base, namespace: namespace}
	dialer := net.Dialer{Timeout: 30 * time.Second}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			all.dialled.Add(1)
			return dialer.DialContext(ctx, network, address)
		},
		TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}},
		ForceAttemptHTTP2: true,
		// client-go asks a silent server after 30 s; here it must happen while we look.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 200 * time.Millisecond, PingTimeout: 15 * time.Second},
	}
	all.client = &http.Client{Transport: transport}
	return all, nil
}

// Ordinary life.
func (all *controllers) reads() {
	all.together(streams, func(int) {
		for range 10 {
			all.get(context.Background(), "/configmaps?labelSelector=size%3Dsmall", io.Discard)
		}
	})
}

// The first of many requests fails, and with it all that were begun: their context ends before they are seen.
func (all *controllers) cancelledAtOnce() {
	for burst := range 8 {
		ctx, cancel := context.WithCancel(context.Background())
		var begun sync.WaitGroup
		begun.Add(streams)
		go func() {
			begun.Wait()
			time.Sleep(time.Duration(burst) * 100 * time.Microsecond)
			cancel()
		}()
		all.together(streams, func(int) {
			begun.Done()
			all.get(ctx, "/configmaps", io.Discard)
		})
		cancel()
		time.Sleep(pause)
	}
}

// Each has its own moment: waiting, executing, in the middle of its answer.
func (all *controllers) cancelledSomeTime() {
	for range 4 {
		all.together(streams, func(int) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(200))*time.Millisecond)
			defer cancel()
			all.get(ctx, "/configmaps", io.Discard)
		})
		time.Sleep(pause)
	}
}

// http.Client.Timeout, as client-go's Config.Timeout sets it.
func (all *controllers) timedOut() {
	impatient := &http.Client{Transport: all.client.Transport, Timeout: 5 * time.Millisecond}
	all.together(streams, func(int) {
		request, _ := http.NewRequest(http.MethodGet, all.url("/configmaps"), nil)
		answer, err := impatient.Do(request)
		if err == nil {
			_, err = io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
		}
		var timeout net.Error
		switch {
		case err == nil:
			all.answered.Add(1)
		case errors.As(err, &timeout) && timeout.Timeout():
			all.cancelled.Add(1)
		default:
			all.failed(err)
		}
	})
	time.Sleep(pause)
}

// A controller manager loses its lease: all its informers stop, and start anew.
func (all *controllers) watchesRestarted() {
	for range 4 {
		ctx, cancel := context.WithCancel(context.Background())
		var open sync.WaitGroup
		open.Add(streams)
		go func() {
			open.Wait()
			cancel()
		}()
		all.together(streams, func(int) {
			first := &once{do: open.Done}
			all.get(ctx, "/configmaps?watch=1&labelSelector=size%3Dsmall", first)
			first.now() // whatever happened
		})
		cancel()
		time.Sleep(pause)
	}
}

// By their own timeoutSeconds.
func (all *controllers) watchesThatEnd() {
	all.together(streams, func(int) {
		all.get(context.Background(), "/configmaps?watch=1&timeoutSeconds=1&labelSelector=size%3Dsmall", io.Discard)
	})
}

// Closing a body resets its stream.
func (all *controllers) leftUnread() {
	for range 4 {
		all.together(streams, func(int) {
			request, _ := http.NewRequest(http.MethodGet, all.url("/configmaps"), nil)
			answer, err := all.client.Do(request)
			if err != nil {
				all.failed(err)
				return
			}
			if _, err := io.CopyN(io.Discard, answer.Body, 4096); err != nil {
				all.failed(err)
			}
			answer.Body.Close()
			all.cancelled.Add(1)
		})
		time.Sleep(pause)
	}
}

// Bodies that stop in the middle.
func (all *controllers) writesBrokenOff() {
	all.together(streams, func(int) {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		body, half := io.Pipe()
		go func() {
			io.WriteString(half, `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "`)
			<-ctx.Done()
			half.CloseWithError(ctx.Err())
		}()
		request, _ := http.NewRequestWithContext(ctx, http.MethodPost, all.url("/configmaps?dryRun=All"), body)
		request.Header.Set("Content-Type", "application/json")
		all.do(request, io.Discard)
	})
	time.Sleep(pause)
}

// Nothing happens on a watch; Go asks whether the server is there.
func (all *controllers) silence() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	all.get(ctx, "/configmaps?watch=1&resourceVersion=0&labelSelector=size%3Dnone", io.Discard)
}

func (all *controllers) together(count int, do func(int)) {
	var group sync.WaitGroup
	for number := range count {
		group.Go(func() { do(number) })
	}
	group.Wait()
}

func (all *controllers) url(path string) string {
	return all.base + "/api/v1/namespaces/" + all.namespace + path
}

func (all *controllers) get(ctx context.Context, path string, into io.Writer) {
	request, _ := http.NewRequestWithContext(ctx, http.MethodGet, all.url(path), nil)
	all.do(request, into)
}

func (all *controllers) do(request *http.Request, into io.Writer) {
	answer, err := all.client.Do(request)
	if err == nil {
		_, err = io.Copy(into, answer.Body)
		answer.Body.Close()
	}
	switch {
	case request.Context().Err() != nil:
		all.cancelled.Add(1)
	case err != nil:
		all.failed(err)
	case answer.StatusCode != http.StatusOK:
		all.failed(errors.New(answer.Status))
	default:
		all.answered.Add(1)
	}
	// Whatever the moment was, only our own word may have ended it.
	if err != nil && strings.Contains(err.Error(), "GOAWAY") {
		all.failed(err)
	}
}

func (all *controllers) failed(err error) {
	all.mutex.Lock()
	defer all.mutex.Unlock()
	all.failures = append(all.failures, err.Error())
}

func (all *controllers) report() {
	failures := all.failures
	if dialled := all.dialled.Load(); dialled > 1 {
		failures = append(failures, fmt.Sprintf("%d connections were needed", dialled))
	}
	json.NewEncoder(os.Stdout).Encode(map[string]any{
		"answered":  all.answered.Load(),
		"cancelled": all.cancelled.Load(),
		"dialled":   all.dialled.Load(),
		"failures":  len(failures),
	})
	if len(failures) > 0 {
		fail(strings.Join(failures[:min(len(failures), 10)], "\n"))
	}
}

// A writer that does something with the first bytes.
type once struct {
	once sync.Once
	do   func()
}

func (first *once) now() { first.once.Do(first.do) }

func (first *once) Write(bytes []byte) (int, error) {
	first.now()
	return len(bytes), nil
}

func fail(message string) {
	fmt.Fprintln(os.Stderr, message)
	os.Exit(1)
}
