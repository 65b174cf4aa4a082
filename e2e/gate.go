package e2e

import (
	"context"
	"net"
	"sync"

	"github.com/stretchr/testify/require"
)

// Gate is a TCP proxy in front of a dependency. It can be shut, or hold back requests or answers.
type Gate struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond // signals a change of the mode
	target  string
	mode    int
	caught  context.CancelFunc // called when bytes are held
	conns   map[net.Conn]struct{}
}

const (
	gateOpen = iota
	gateShut
	gateHoldRequests
	gateHoldAnswers
)

// NewGate opens a gate to the target, a host:port. It closes when t ends.
func NewGate(t interface {
	require.TestingT
	Context() context.Context
	Cleanup(closing func())
}, target string,
) *Gate {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := &Gate{listener: listener, target: target, conns: map[net.Conn]struct{}{}}
	g.changed = sync.NewCond(&g.mu)
	g.wg.Go(g.accept)
	t.Cleanup(g.close)
	return g
}

// Addr returns the gate's own host:port.
func (g *Gate) Addr() string { return g.listener.Addr().String() }

// HoldRequests holds back the clients' bytes from now on. The channel closes when it holds the first bytes.
func (g *Gate) HoldRequests() <-chan struct{} { return g.set(gateHoldRequests, false) }

// HoldAnswers does the same with the dependency's bytes, and lets requests pass.
func (g *Gate) HoldAnswers() <-chan struct{} { return g.set(gateHoldAnswers, false) }

// Open lets everything pass again, even held bytes if their connection still exists.
func (g *Gate) Open() { g.set(gateOpen, false) }

// Drop cuts every connection with its held bytes, and opens the gate.
func (g *Gate) Drop() { g.set(gateOpen, true) }

func (g *Gate) close() {
	_ = g.listener.Close()
	g.Drop()
	g.wg.Wait()
}

func (g *Gate) set(mode int, cuts bool) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	for conn := range g.conns {
		if cuts {
			_ = conn.Close()
		}
	}
	held, caught := context.WithCancel(context.Background())
	g.mode, g.caught = mode, caught
	g.changed.Broadcast()
	return held.Done()
}

func (g *Gate) accept() {
	for {
		client, err := g.listener.Accept()
		if err != nil {
			return
		}
		g.mu.Lock()
		server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", g.target)
		if err == nil {
			g.conns[client], g.conns[server] = struct{}{}, struct{}{}
			g.wg.Go(func() { g.pump(server, client, gateHoldRequests) })
			g.wg.Go(func() { g.pump(client, server, gateHoldAnswers) })
		} else {
			_ = client.Close()
		}
		g.mu.Unlock()
	}
}

// pump copies from one side to the other. It waits while its direction is held, and ends when the gate shuts.
func (g *Gate) pump(to, from net.Conn, held int) {
	for buffer := make([]byte, 32<<10); ; {
		n, err := from.Read(buffer)
		if err != nil || !g.passes(held) {
			break
		}
		_, _ = to.Write(buffer[:n]) // if the other side has closed, its pump ends this one, too
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, conn := range []net.Conn{to, from} {
		_ = conn.Close()
		delete(g.conns, conn)
	}
}

// passes waits while a direction is held, and then reports whether its bytes may pass.
func (g *Gate) passes(held int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.mode == held {
		g.caught()
		g.changed.Wait()
	}
	return g.mode != gateShut
}
