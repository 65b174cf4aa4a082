package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
)

// Gate is a TCP proxy in front of a dependency. A test can shut it, or hold requests or answers
// at a known time.
type Gate struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex
	target string
	mode   gateMode
	seen   chan struct{} // closed when bytes are held
	freed  chan struct{} // closed when holding ends
	conns  map[net.Conn]struct{}
}

type gateMode int

const (
	gateOpen gateMode = iota
	gateShut
	gateHoldRequests
	gateHoldAnswers
)

// NewGate opens a gate to the target, a host:port.
func NewGate(ctx context.Context, target string) (*Gate, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("gate: %w", err)
	}
	g := &Gate{listener: listener, target: target, freed: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	g.wg.Go(g.accept)
	return g, nil
}

// Addr is the gate's own host:port.
func (g *Gate) Addr() string { return g.listener.Addr().String() }

// HoldRequests holds the clients' bytes from now on. The channel closes when the first bytes
// are held.
func (g *Gate) HoldRequests() <-chan struct{} { return g.set(gateHoldRequests) }

// HoldAnswers holds the dependency's bytes from now on and lets requests pass. The channel
// closes when the first bytes are held.
func (g *Gate) HoldAnswers() <-chan struct{} { return g.set(gateHoldAnswers) }

// Open lets everything pass again. Held bytes continue where their connection still exists.
func (g *Gate) Open() { g.set(gateOpen) }

// Drop cuts every connection with its held bytes, and opens the gate.
func (g *Gate) Drop() {
	g.cut()
	g.Open()
}

// Close ends the gate.
func (g *Gate) Close() {
	_ = g.listener.Close()
	g.Drop()
	g.wg.Wait()
}

func (g *Gate) set(mode gateMode) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.freed)
	g.mode, g.seen, g.freed = mode, make(chan struct{}), make(chan struct{})
	return g.seen
}

func (g *Gate) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for conn := range g.conns {
		_ = conn.Close()
	}
}

func (g *Gate) accept() {
	for {
		client, err := g.listener.Accept()
		if err != nil {
			return
		}
		g.mu.Lock()
		target := g.target
		g.mu.Unlock()
		server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", target)
		if err != nil {
			_ = client.Close()
			continue
		}
		g.mu.Lock()
		g.conns[client], g.conns[server] = struct{}{}, struct{}{}
		g.mu.Unlock()
		g.wg.Go(func() { g.pump(server, client, gateHoldRequests) })
		g.wg.Go(func() { g.pump(client, server, gateHoldAnswers) })
	}
}

// pump copies from one side to the other. It stops while its direction is held, and ends where the gate is shut.
func (g *Gate) pump(to, from net.Conn, held gateMode) {
	_, _ = io.Copy(passing(func(p []byte) (int, error) {
		if !g.passes(held) {
			return 0, net.ErrClosed
		}
		return to.Write(p)
	}), from)
	_ = to.Close()
	_ = from.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.conns, to)
	delete(g.conns, from)
}

type passing func([]byte) (int, error)

func (p passing) Write(b []byte) (int, error) { return p(b) }

// passes waits while bytes of a direction are held, and reports whether they pass then.
func (g *Gate) passes(held gateMode) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.mode == held {
		select {
		case <-g.seen:
		default:
			close(g.seen)
		}
		freed := g.freed
		g.mu.Unlock()
		<-freed
		g.mu.Lock()
	}
	return g.mode != gateShut
}
