package cloudtest

import (
	"context"
	"encoding/json"
	"fmt"
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

// Broker are the options that have Google's Go client of Pub/Sub, which speaks gRPC, administer this
// project's topics and subscriptions. They publish and pull nothing.
func (c *Cloud) Broker() []option.ClientOption {
	return []option.ClientOption{
		option.WithEndpoint("127.0.0.1:1"), option.WithoutAuthentication(), // nothing is sent there
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
		option.WithGRPCDialOption(grpc.WithUnaryInterceptor(
			func(_ context.Context, method string, request, answer any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
				return c.translate(method, request, answer.(proto.Message))
			})),
	}
}

// translate has a call of gRPC answered as the same one in JSON.
func (c *Cloud) translate(method string, request any, answer proto.Message) error {
	r, body := call{method: http.MethodGet, api: "pubsub"}, proto.Message(nil)
	switch asked := request.(type) {
	case *pubsubpb.GetTopicRequest:
		r.path = asked.Topic
	case *pubsubpb.GetSubscriptionRequest:
		r.path = asked.Subscription
	case *pubsubpb.ListTopicsRequest:
		r.path = asked.Project + "/topics"
	case *pubsubpb.ListSubscriptionsRequest:
		r.path = asked.Project + "/subscriptions"
	case *pubsubpb.ListTopicSubscriptionsRequest:
		r.path = asked.Topic + "/subscriptions"
	case *iampb.GetIamPolicyRequest:
		r.path, r.verb = asked.Resource, "getIamPolicy"
	case *pubsubpb.Topic:
		r.method, r.path, body = http.MethodPut, asked.Name, asked
	case *pubsubpb.Subscription:
		r.method, r.path, body = http.MethodPut, asked.Name, asked
	case *pubsubpb.UpdateSubscriptionRequest:
		r.method, r.path, body = http.MethodPatch, asked.Subscription.GetName(), asked
		r.query = url.Values{"updateMask": {strings.Join(asked.UpdateMask.GetPaths(), ",")}}
	default:
		return status.Error(codes.Unimplemented, method)
	}
	if body != nil {
		must(0, json.Unmarshal(must(protojson.Marshal(body)), &r.body))
	}
	said, err := c.answer(r)
	if err != nil {
		return err
	}
	delete(said, "etag") // those of policies are made up, and not the bytes that gRPC has
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(must(json.Marshal(said)), answer)
}

type endpoint struct{ option, api, version string }

// endpoints are the provider's names of the APIs, with the versions that it expects in the address.
var endpoints = []endpoint{
	{"billing_budgets", "billingbudgets", "v1/"}, {"certificate_manager", "certificatemanager", "v1/"},
	{"cloud_billing", "cloudbilling", "v1/"}, {"cloud_resource_manager", "cloudresourcemanager", "v1/"},
	{"cloud_run_v2", "run", "v2/"}, {"cloud_scheduler", "cloudscheduler", "v1/"},
	{"cloud_tasks", "cloudtasks", "v2/"}, {"compute", "compute", "v1/"},
	{"firestore", "firestore", "v1/"}, {"iam", "iam", "v1/"}, {"iam_beta", "iam", "v1/"},
	{"kms", "cloudkms", "v1/"}, {"logging", "logging", "v2/"}, {"monitoring", "monitoring", ""},
	{"pubsub", "pubsub", "v1/"}, {"resource_manager", "cloudresourcemanager", "v1/"},
	{"secret_manager", "secretmanager", "v1/"}, {"service_usage", "serviceusage", "v1/"},
}

// Provider is the block of the provider hashicorp/google that has all of its calls come here.
func (c *Cloud) Provider(region string) string {
	text := fmt.Sprintf("provider \"google\" {\n  project               = %q\n  region                = %q\n  access_token          = \"made-up\"\n  user_project_override = false\n\n  batching {\n    send_after = \"300ms\"\n  }\n\n", Project, region)
	for _, e := range endpoints {
		text += fmt.Sprintf("  %s_custom_endpoint = %q\n", e.option, c.Endpoint(e.api)+e.version)
	}
	return text + "}\n"
}
