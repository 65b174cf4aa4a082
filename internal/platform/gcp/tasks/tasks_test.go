package tasks_test

import (
	"context"
	"sync"
	"testing"
	"time"

	pb "cloud.google.com/go/cloudtasks/apiv2/cloudtaskspb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"billhook/internal/filetest"
	"billhook/internal/pipeline/alarm"
	"billhook/internal/platform/gcp/tasks"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

func TestMain(m *testing.M) { storetest.Main(m) }

const queue = "projects/p/locations/europe-west3/queues/billhook-alarm"

// start is a whole second.
var start = time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)

// cloud answers the client's calls in its place.
type cloud struct {
	answer func(ctx context.Context) error // nil accepts each task

	mu      sync.Mutex
	created []*pb.CreateTaskRequest
}

func (c *cloud) intercept(
	ctx context.Context, _ string, request, _ any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption,
) error {
	c.mu.Lock()
	c.created = append(c.created, request.(*pb.CreateTaskRequest))
	c.mu.Unlock()
	if c.answer != nil {
		return c.answer(ctx)
	}
	return nil
}

func (c *cloud) times() []time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return filetest.Map(c.created, func(request *pb.CreateTaskRequest) time.Time {
		return request.GetTask().GetScheduleTime().AsTime()
	})
}

func newAlarm(t *testing.T, c *cloud, now func() time.Time) *tasks.Alarm {
	t.Helper()
	a := filetest.Must(tasks.New(t.Context(), tasks.Config{
		Queue: queue, URL: "https://worker.example/tasks/release-delayed",
		ServiceAccount: "push@p.iam.gserviceaccount.com", Audience: "https://billhook.push.p.internal", Now: now,
	}, option.WithEndpoint("passthrough:///127.0.0.1:1"), // no call reaches it
		option.WithoutAuthentication(), option.WithGRPCDialOption(grpc.WithUnaryInterceptor(c.intercept)),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials()))))(t)
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	return a
}

func still() time.Time { return start }

func TestTaskPostsToTheWorkerAsThePushAccount(t *testing.T) {
	t.Parallel()
	c := &cloud{}
	require.NoError(t, newAlarm(t, c, still).At(t.Context(), start.Add(5*time.Second)))
	require.Len(t, c.created, 1)
	want := &pb.CreateTaskRequest{Parent: queue, Task: &pb.Task{
		// There is no name: Cloud Tasks generates one.
		ScheduleTime:     timestamppb.New(start.Add(5*time.Second + alarm.Step)),
		DispatchDeadline: durationpb.New(90 * time.Second),
		MessageType: &pb.Task_HttpRequest{HttpRequest: &pb.HttpRequest{
			Url: "https://worker.example/tasks/release-delayed", HttpMethod: pb.HttpMethod_POST,
			AuthorizationHeader: &pb.HttpRequest_OidcToken{OidcToken: &pb.OidcToken{
				ServiceAccountEmail: "push@p.iam.gserviceaccount.com", Audience: "https://billhook.push.p.internal",
			}},
		}},
	}}
	require.True(t, proto.Equal(want, c.created[0]), "%v", c.created[0])
}

// The task comes within 300 ms after the time, of which 50 ms are for clock differences. No moment has two
// tasks.
func TestEveryRequestedTimeGetsATask(t *testing.T) {
	t.Parallel()
	c := &cloud{}
	var now time.Time
	a := newAlarm(t, c, func() time.Time { return now })
	now = start
	rapid.Check(t, func(t *rapid.T) {
		before := len(c.times())
		// The moments of earlier rounds are past.
		now = now.Add(time.Minute + time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "start")))
		for range rapid.IntRange(1, 12).Draw(t, "requests") {
			at := now.Add(time.Duration(rapid.Int64Range(-int64(time.Second), int64(2*time.Second)).Draw(t, "at")))
			require.NoError(t, a.At(t.Context(), at))
			if at.Before(now) {
				at = now
			}
			found := false
			for _, scheduled := range c.times()[before:] {
				late := scheduled.Sub(at)
				found = found || (late >= 50*time.Millisecond && late < 50*time.Millisecond+alarm.Step)
			}
			require.True(t, found, "requested %s, scheduled %v", at, c.times()[before:])
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "pass")))
		}
		seen := map[time.Time]bool{}
		for _, scheduled := range c.times()[before:] {
			require.False(t, seen[scheduled], "two tasks for %s", scheduled)
			seen[scheduled] = true
		}
	})
}

func TestRefusedTaskIsRequestedAgain(t *testing.T) {
	t.Parallel()
	refuse := status.Error(codes.PermissionDenied, "no")
	c := &cloud{answer: func(context.Context) error { return refuse }}
	a := newAlarm(t, c, still)
	for range 2 {
		err := a.At(t.Context(), start)
		require.Equal(t, codes.PermissionDenied, status.Code(err))
		require.Equal(t, retry.Verdict{Class: retry.Unavailable, Reason: "alarm_unavailable", Counts: true},
			retry.Decide(err))
	}
	require.Len(t, c.times(), 2)
	refuse = nil
	for range 2 {
		require.NoError(t, a.At(t.Context(), start))
	}
	require.Len(t, c.times(), 3)
}

// A push waits during At, also if another push is requesting the same time.
func TestAtReturnsInTimeWhenCloudTasksHangs(t *testing.T) {
	t.Parallel()
	filetest.Bubble(t, func(t *testing.T) {
		a := newAlarm(t, &cloud{answer: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}}, still)
		var asking sync.WaitGroup
		for range 3 {
			asking.Go(func() {
				began := time.Now()
				err := a.At(t.Context(), start)
				assert.Equal(t, "alarm_unavailable", retry.Decide(err).Reason, "and not the handler's timeout: %v", err)
				assert.LessOrEqual(t, time.Since(began), 2*time.Second)
			})
		}
		asking.Wait()
	})
}

func TestTimeGetsItsTaskAlsoAfterTheEndOfThePush(t *testing.T) {
	t.Parallel()
	const month = 30 * 24 * time.Hour
	c := &cloud{}
	a := newAlarm(t, c, still)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, a.At(ended, start), "the message is kept")
	require.NoError(t, a.At(t.Context(), start.Add(month-alarm.Step)))
	require.Equal(t, "alarm_unavailable", retry.Decide(a.At(t.Context(), start.Add(month))).Reason)
	require.Len(t, c.times(), 2)
}
