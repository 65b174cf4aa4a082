// Package importertest starts the servers that an import drains: Redis, RabbitMQ and Postgres of the Debian
// packages. Without them a suite is skipped with a message, or fails with REQUIRE_EMULATORS=1.
package importertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"
)

// T starts servers, which end with it: a test, or a program that is built like one.
type T interface {
	require.TestingT
	Helper()
	Context() context.Context
	TempDir() string
	Cleanup(func())
	Skipf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// installed returns the first of the programs that exists.
func installed(t T, name string, patterns ...string) string {
	t.Helper()
	for _, pattern := range patterns {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return slices.Max(found)
		}
	}
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	if os.Getenv("REQUIRE_EMULATORS") == "" {
		t.Skipf("left out: %s is not installed", name)
	}
	t.Fatalf("%s is needed here: apt-get install redis-server rabbitmq-server postgresql", name)
	return ""
}

// freePort returns a port of 127.0.0.1 that no process listens on.
func freePort(t T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, listener.Close()) }()
	return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
}

// as runs a program that refuses to run as root under the account of its package.
func as(t T, account, folder string) *syscall.SysProcAttr {
	t.Helper()
	attributes := &syscall.SysProcAttr{Setpgid: true}
	if os.Getuid() != 0 || account == "" {
		return attributes
	}
	who, err := user.Lookup(account)
	require.NoError(t, err)
	uid, err := strconv.ParseUint(who.Uid, 10, 32)
	require.NoError(t, err)
	gid, err := strconv.ParseUint(who.Gid, 10, 32)
	require.NoError(t, err)
	require.NoError(t, os.Chown(folder, int(uid), int(gid)))
	for at := folder; at != filepath.Dir(at) && at != os.TempDir(); at = filepath.Dir(at) {
		info, err := os.Stat(at)
		require.NoError(t, err)
		require.NoError(t, os.Chmod(at, info.Mode()|0o011))
	}
	attributes.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attributes
}

// server is a program that runs until the end of the test.
type server struct {
	path        string
	arguments   []string
	environment []string
	attributes  *syscall.SysProcAttr
	ends        syscall.Signal
}

// start runs the server until the end of the test, and returns when ready does without an error.
func (s server) start(t T, ready func(context.Context) error) {
	t.Helper()
	command := exec.Command(s.path, s.arguments...) //nolint:noctx // the cleanup ends it
	command.Env = append([]string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8"}, s.environment...)
	command.SysProcAttr = s.attributes
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	require.NoError(t, command.Start())
	ended := make(chan struct{})
	go func() { _ = command.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = syscall.Kill(-command.Process.Pid, s.ends) // it may have ended already
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
			<-ended
		}
	})
	patience, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready(patience)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ended:
			t.Fatalf("%s has ended: %s", filepath.Base(s.path), output.String())
		case <-patience.Done():
			t.Fatalf("%s is not ready: %v", filepath.Base(s.path), err)
		}
	}
}

// Redis starts a server, and returns a function that runs a command on it, and its URL.
func Redis(t T) (do func(command string, arguments ...any) any, address string) {
	t.Helper()
	path, port, folder := installed(t, "redis-server"), freePort(t), t.TempDir()
	address = "redis://127.0.0.1:" + port
	connections := &redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) {
		return redis.DialURLContext(ctx, address)
	}}
	t.Cleanup(func() { require.NoError(t, connections.Close()) })
	server{
		path: path, arguments: []string{"--port", port, "--bind", "127.0.0.1", "--dir", folder, "--save", ""},
		attributes: as(t, "", folder), ends: syscall.SIGTERM,
	}.start(t, func(ctx context.Context) error {
		connection, err := connections.GetContext(ctx)
		return errors.Join(err, connection.Close())
	})
	return func(command string, arguments ...any) any {
		t.Helper()
		connection := connections.Get()
		defer func() { require.NoError(t, connection.Close()) }()
		answer, err := connection.Do(command, arguments...)
		require.NoError(t, err)
		return answer
	}, address
}

// RabbitMQ starts a broker, and returns a connection to it and its URL.
func RabbitMQ(t T) (connection *amqp.Connection, address string) {
	t.Helper()
	path := installed(t, "rabbitmq-server", "/usr/lib/rabbitmq/bin/rabbitmq-server")
	daemon := installed(t, "epmd")
	port, names, nodes, folder := freePort(t), freePort(t), freePort(t), t.TempDir()
	attributes := as(t, "rabbitmq", folder)
	environment := []string{
		"HOME=" + folder, "ERL_EPMD_PORT=" + names, "RABBITMQ_NODENAME=import" + port + "@localhost",
		"RABBITMQ_NODE_PORT=" + port, "RABBITMQ_DIST_PORT=" + nodes, "RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
		"RABBITMQ_MNESIA_BASE=" + folder + "/data", "RABBITMQ_LOG_BASE=" + folder + "/log",
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + folder + "/plugins", "RABBITMQ_CONFIG_FILE=" + folder + "/config",
		"RABBITMQ_PID_FILE=" + folder + "/pid", "RABBITMQ_CONF_ENV_FILE=" + folder + "/environment",
	}
	// It gets its own port mapper: one that it starts itself would outlive it.
	mapper := server{path: daemon, environment: environment, attributes: attributes, ends: syscall.SIGKILL}
	mapper.arguments = []string{"-port", names, "-address", "127.0.0.1"}
	mapper.start(t, func(ctx context.Context) error {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", "127.0.0.1:"+names)
		if err == nil {
			err = c.Close()
		}
		return err
	})
	address = "amqp://guest:guest@127.0.0.1:" + port + "/"
	broker := server{path: path, environment: environment, attributes: attributes, ends: syscall.SIGKILL}
	broker.start(t, func(context.Context) (err error) {
		connection, err = amqp.Dial(address)
		return err
	})
	t.Cleanup(func() { _ = connection.Close() }) // the test may have closed it
	return connection, address
}

// Postgres starts a server, and returns a connection to it and its URL.
func Postgres(t T) (connection *pgx.Conn, address string) {
	t.Helper()
	path := installed(t, "postgres", "/usr/lib/postgresql/*/bin/postgres")
	port, folder := freePort(t), t.TempDir()
	attributes := as(t, "postgres", folder)
	data, initdb := filepath.Join(folder, "data"), filepath.Join(filepath.Dir(path), "initdb")
	initialize := exec.CommandContext(t.Context(), initdb, "-D", data, "-A", "trust", "-U", "old", "-E", "UTF8",
		"--no-sync")
	initialize.SysProcAttr, initialize.Dir = attributes, folder
	output, err := initialize.CombinedOutput()
	require.NoError(t, err, string(output))
	address = fmt.Sprintf("postgres://old@127.0.0.1:%s/postgres?sslmode=disable", port)
	arguments := []string{"-D", data, "-p", port}
	sockets := "unix_socket_directories=" + folder
	for _, setting := range []string{"listen_addresses=127.0.0.1", sockets, "fsync=off"} {
		arguments = append(arguments, "-c", setting)
	}
	server{
		// also with open connections
		path: path, attributes: attributes, arguments: arguments, ends: syscall.SIGINT,
	}.start(t, func(ctx context.Context) (err error) {
		connection, err = pgx.Connect(ctx, address)
		return err
	})
	t.Cleanup(func() { _ = connection.Close(context.Background()) })
	return connection, address
}
