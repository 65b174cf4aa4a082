// Package servicetest runs the program of a service as its main does, with emulators that refuse every
// request: a service that publishes or commits gets an error at once.
package servicetest

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"billhook/internal/compose/service"
)

// emulators are the variables that the client libraries read from the environment of the process.
var emulators = []string{"PUBSUB_EMULATOR_HOST", "FIRESTORE_EMULATOR_HOST"}

// Main runs the tests of a program. Both emulators are one server without methods. Without any server, a
// client repeats its calls until a deadline, and a worker that ends waits for it.
func Main(m *testing.M) {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	for _, name := range emulators {
		if err == nil {
			err = os.Setenv(name, listener.Addr().String())
		}
	}
	if err != nil {
		panic(err)
	}
	go func() { _ = grpc.NewServer().Serve(listener) }()
	os.Exit(m.Run())
}

// Environment has only these values.
func Environment(values map[string]string) func(name string) string {
	return func(name string) string { return values[name] }
}

// Start runs a service with the emulators, on free ports unless the values say otherwise, until the test ends
// or end is called. It returns the URLs of the service and of its metrics, and end, which returns the log.
func Start(t testing.TB, run service.Run, values map[string]string) (url, metrics string, end func() string) {
	t.Helper()
	all := map[string]string{"HOST": "127.0.0.1", "PORT": "0", "GOOGLE_CLOUD_PROJECT": "p"}
	for _, name := range emulators {
		all[name] = os.Getenv(name)
	}
	maps.Copy(all, values)
	ctx, stop := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	ended, listening, log := make(chan error, 1), make(chan string, 2), make(chan string, 1)
	go func() {
		err := run(ctx, Environment(all), writer)
		_ = writer.CloseWithError(err)
		ended <- err
	}()
	go func() {
		defer close(listening)
		var all strings.Builder
		for lines := bufio.NewScanner(reader); lines.Scan(); {
			var said struct{ Message, Address string }
			if json.Unmarshal(lines.Bytes(), &said) == nil && said.Message == "listening" {
				listening <- "http://" + said.Address
			}
			all.WriteString(lines.Text() + "\n")
		}
		log <- all.String()
	}()
	end = sync.OnceValue(func() string {
		stop()
		require.NoError(t, <-ended)
		return <-log
	})
	t.Cleanup(func() { end() })
	return <-listening, <-listening, end
}

// Status returns the status of the answer to a request without headers or a body.
func Status(t testing.TB, method, url string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	require.NoError(t, err)
	return StatusOf(t, request)
}

// StatusOf returns the status of the answer to a request.
func StatusOf(t testing.TB, request *http.Request) int {
	t.Helper()
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode
}
