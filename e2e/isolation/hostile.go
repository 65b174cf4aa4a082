package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// target serves connections until they are closed.
type target func(net.Conn)

// hostile are the targets that mean harm.
var hostile = []struct {
	name   string
	target target
}{
	{"hangs", func(c net.Conn) { request(c); gone(c) }},
	{"trickles headers", func(c net.Conn) { trickle(c, "HTTP/1.1 200 OK\r\nX-A: ", "a") }},
	{"trickles a body", func(c net.Conn) { trickle(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", "a") }},
	{"answers 1 GB", func(c net.Conn) {
		request(c)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n")
		for err := error(nil); err == nil; {
			_, err = c.Write(chunk)
		}
	}},
	{"redirects to metadata", func(c net.Conn) {
		for request(c) {
			_, _ = io.WriteString(c, "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/computeMetadata/v1/\r\nContent-Length: 0\r\n\r\n")
		}
	}},
	{"resets", func(c net.Conn) {
		request(c)
		if tcp, ok := c.(counting); ok {
			_ = tcp.SetLinger(0)
		}
	}},
	{"closes kept connections", func(c net.Conn) {
		request(c)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	}},
}

var chunk = make([]byte, 64<<10)

// request reads what of a request comes at once, and reports whether anything came.
func request(c net.Conn) bool {
	n, _ := c.Read(make([]byte, 4<<10)) // which is more than a request has
	return n > 0
}

// gone returns when the other side has closed the connection.
func gone(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// trickle answers bit by bit, until the other side has closed the connection.
func trickle(c net.Conn, first, more string) {
	request(c)
	closed := make(chan struct{})
	go func() { defer close(closed); gone(c) }()
	_, _ = io.WriteString(c, first)
	every := time.NewTicker(10 * time.Millisecond)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			_, _ = io.WriteString(c, more)
		case <-closed:
			return
		}
	}
}

// behaves is a target that takes some time for each request, and answers.
func behaves(takes time.Duration) target {
	return func(c net.Conn) {
		for request(c) {
			<-time.After(takes)
			if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"); err != nil {
				return
			}
		}
	}
}

// place is where a target listens.
type place struct {
	net.Listener
	// asked counts the reads of a request. begun is closed at the first.
	asked atomic.Int64
	begun chan struct{}

	mu     sync.Mutex
	open   map[net.Conn]bool
	served sync.WaitGroup
}

// counting counts the requests on a connection.
type counting struct {
	*net.TCPConn
	at *place
}

func (c counting) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	if n > 0 && c.at.asked.Add(1) == 1 {
		close(c.at.begun)
	}
	return n, err
}

func serveAt(ctx context.Context, t target) (*place, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &place{Listener: listener, begun: make(chan struct{}), open: map[net.Conn]bool{}}
	p.served.Go(func() {
		for {
			c, err := p.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			p.open[c] = true
			p.mu.Unlock()
			p.served.Go(func() {
				if tcp, ok := c.(*net.TCPConn); ok {
					t(counting{tcp, p})
				}
				_ = c.Close()
				p.mu.Lock()
				delete(p.open, c)
				p.mu.Unlock()
			})
		}
	})
	return p, nil
}

func (p *place) url() string { return "http://" + p.Addr().String() }

// close ends the target with all of its connections.
func (p *place) close() {
	_ = p.Close()
	p.mu.Lock()
	for c := range p.open {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.served.Wait()
}

// once is the target of the payments, which counts by event.
type once struct {
	mu     sync.Mutex
	posted map[string]int
}

func (o *once) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		o.mu.Lock()
		o.posted[r.Header.Get("Idempotency-Key")]++
		o.mu.Unlock()
	}
}
