package cloudtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Clients returns options that make Google's Go clients of JSON APIs call this project.
func (c *Cloud) Clients() []option.ClientOption {
	return []option.ClientOption{option.WithHTTPClient(&http.Client{Transport: c})}
}

// RoundTrip sends a request for https://<api>.googleapis.com/ to this project.
func (c *Cloud) RoundTrip(request *http.Request) (*http.Response, error) {
	api, _, _ := strings.Cut(request.URL.Host, ".")
	sent := request.Clone(request.Context())
	sent.URL.Scheme, sent.URL.Host, sent.Host = "http", c.server.Listener.Addr().String(), ""
	sent.URL.Path, sent.URL.RawPath = "/"+api+request.URL.Path, ""
	return http.DefaultTransport.RoundTrip(sent)
}

// Broker returns options that make Google's gRPC client of Pub/Sub administer this project, not publish.
func (c *Cloud) Broker() []option.ClientOption {
	return []option.ClientOption{
		option.WithEndpoint("127.0.0.1:1"), option.WithoutAuthentication(), // this address is never called
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
		option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(c.translate)),
	}
}

// translations maps gRPC calls to JSON: the method, the member that has the path, and the path's suffix.
var translations = map[string]struct{ method, member, after, verb string }{
	"CreateTopic":            {http.MethodPut, "name", "", ""},
	"GetTopic":               {http.MethodGet, "topic", "", ""},
	"ListTopics":             {http.MethodGet, "project", "/topics", ""},
	"ListTopicSubscriptions": {http.MethodGet, "topic", "/subscriptions", ""},
	"CreateSubscription":     {http.MethodPut, "name", "", ""},
	"GetSubscription":        {http.MethodGet, "subscription", "", ""},
	"ListSubscriptions":      {http.MethodGet, "project", "/subscriptions", ""},
	"UpdateSubscription":     {http.MethodPatch, "subscription.name", "", ""},
	"GetIamPolicy":           {http.MethodGet, "resource", "", "getIamPolicy"},
}

// translate answers a gRPC call with the answer to the same call in JSON.
func (c *Cloud) translate(
	_ context.Context, method string, request, answer any,
	_ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption,
) error {
	as, known := translations[last(method)]
	if !known {
		return status.Error(codes.Unimplemented, method)
	}
	r := call{method: as.method, api: "pubsub", verb: as.verb}
	must(0, json.Unmarshal(must(protojson.Marshal(request.(proto.Message))), &r.body))
	r.path = text(r.body, strings.Split(as.member, ".")...) + as.after
	r.query = url.Values{"updateMask": {text(r.body, "updateMask")}}
	said, err := c.answer(r)
	if err != nil {
		return err
	}
	delete(said, "etag") // policies have an invented etag, which is not bytes as in gRPC
	options := protojson.UnmarshalOptions{DiscardUnknown: true}
	return options.Unmarshal(must(json.Marshal(said)), answer.(proto.Message))
}

type endpoint struct{ option, api, version string }

// endpoints has the Terraform provider's names of the APIs, and the versions in their addresses.
var endpoints = []endpoint{
	{"artifact_registry", "artifactregistry", "v1/"},
	{"storage", "storage", "v1/"},
	{"billing_budgets", "billingbudgets", "v1/"},
	{"cloud_billing", "cloudbilling", "v1/"},
	{"cloud_resource_manager", "cloudresourcemanager", "v1/"},
	{"cloud_run_v2", "run", "v2/"},
	{"cloud_scheduler", "cloudscheduler", "v1/"},
	{"cloud_tasks", "cloudtasks", "v2/"},
	{"compute", "compute", "v1/"},
	{"firestore", "firestore", "v1/"},
	{"iam", "iam", "v1/"},
	{"iam_beta", "iam", "v1/"},
	{"iap", "iap", "v1/"},
	{"kms", "cloudkms", "v1/"},
	{"logging", "logging", "v2/"},
	{"monitoring", "monitoring", ""},
	{"pubsub", "pubsub", "v1/"},
	{"resource_manager", "cloudresourcemanager", "v1/"},
	{"secret_manager", "secretmanager", "v1/"},
	{"service_usage", "serviceusage", "v1/"},
}

// Provider returns a block for the provider hashicorp/google that directs all of its calls here.
func (c *Cloud) Provider(region string) string {
	text := fmt.Sprintf("provider \"google\" {\n  project               = %q\n  region                = %q\n "+
		" access_token          = \"made-up\"\n  user_project_override = false\n\n  batching {\n    send_after "+
		"= \"300ms\"\n  }\n\n", Project, region)
	for _, e := range endpoints {
		text += fmt.Sprintf("  %s_custom_endpoint = %q\n", e.option, c.Endpoint(e.api)+e.version)
	}
	return text + "}\n"
}
