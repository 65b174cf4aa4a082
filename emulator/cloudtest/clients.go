package cloudtest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Clients are the options that have Google's Go clients of the JSON APIs call this project.
func (c *Cloud) Clients() []option.ClientOption {
	return []option.ClientOption{option.WithHTTPClient(&http.Client{Transport: c.Transport()})}
}

// Transport sends what is for https://<api>.googleapis.com/ to this project.
func (c *Cloud) Transport() http.RoundTripper { return toProject{c} }

type toProject struct{ cloud *Cloud }

func (p toProject) RoundTrip(request *http.Request) (*http.Response, error) {
	api, _, _ := strings.Cut(request.URL.Host, ".")
	there, err := url.Parse(p.cloud.Endpoint(api))
	if err != nil {
		return nil, err
	}
	sent := request.Clone(request.Context())
	sent.URL.Scheme, sent.URL.Host, sent.Host = there.Scheme, there.Host, there.Host
	sent.URL.Path, sent.URL.RawPath = strings.TrimSuffix(there.Path, "/")+request.URL.Path, ""
	return http.DefaultTransport.RoundTrip(sent)
}

// Broker are the options that have Google's Go client of Pub/Sub, which speaks gRPC, administer this project's topics
// and subscriptions. They publish and pull nothing.
func (c *Cloud) Broker() []option.ClientOption {
	return []option.ClientOption{
		option.WithEndpoint("127.0.0.1:1"), option.WithoutAuthentication(), // nothing is sent there
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
		option.WithGRPCDialOption(grpc.WithUnaryInterceptor(
			func(ctx context.Context, method string, request, answer any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
				return c.translate(ctx, method, request, answer)
			})),
	}
}

func (c *Cloud) translate(ctx context.Context, method string, request, answer any) error {
	verb, path, body := http.MethodGet, "", proto.Message(nil)
	switch r := request.(type) {
	case *pubsubpb.GetTopicRequest:
		path = r.Topic
	case *pubsubpb.GetSubscriptionRequest:
		path = r.Subscription
	case *pubsubpb.ListTopicsRequest:
		path = r.Project + "/topics"
	case *pubsubpb.ListSubscriptionsRequest:
		path = r.Project + "/subscriptions"
	case *pubsubpb.ListTopicSubscriptionsRequest:
		path = r.Topic + "/subscriptions"
	case *iampb.GetIamPolicyRequest:
		path = r.Resource + ":getIamPolicy"
	case *pubsubpb.Topic:
		verb, path, body = http.MethodPut, r.Name, r
	case *pubsubpb.Subscription:
		verb, path, body = http.MethodPut, r.Name, r
	case *pubsubpb.UpdateSubscriptionRequest:
		verb, path, body = http.MethodPatch, r.Subscription.GetName()+"?updateMask="+strings.Join(r.UpdateMask.GetPaths(), ","), r
	default:
		return status.Error(codes.Unimplemented, method)
	}
	text, err := protojson.Marshal(body)
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	asked, err := http.NewRequestWithContext(ctx, verb, c.Endpoint("pubsub")+"v1/"+path, bytes.NewReader(text))
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	answered, err := http.DefaultClient.Do(asked)
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	defer func() { _ = answered.Body.Close() }() // it was read
	said, err := io.ReadAll(answered.Body)
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	if code, refused := ofGRPC[answered.StatusCode]; refused {
		return status.Error(code, string(said))
	}
	var document Document
	if err := json.Unmarshal(said, &document); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	delete(document, "etag") // those of policies are made up, and not the bytes that gRPC has
	if said, err = json.Marshal(document); err == nil {
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(said, answer.(proto.Message))
	}
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}

var ofGRPC = map[int]codes.Code{
	http.StatusBadRequest: codes.InvalidArgument, http.StatusForbidden: codes.PermissionDenied, http.StatusNotFound: codes.NotFound,
	http.StatusConflict: codes.AlreadyExists, http.StatusServiceUnavailable: codes.Unavailable,
}
