package cloudtest

import "fmt"

// endpoints are the provider's names of the APIs, with the versions that it expects in the address.
var endpoints = []struct{ option, api, version string }{
	{"billing_budgets", "billingbudgets", "v1/"},
	{"certificate_manager", "certificatemanager", "v1/"},
	{"cloud_billing", "cloudbilling", "v1/"},
	{"cloud_resource_manager", "cloudresourcemanager", "v1/"},
	{"cloud_run_v2", "run", "v2/"},
	{"cloud_scheduler", "cloudscheduler", "v1/"},
	{"cloud_tasks", "cloudtasks", "v2/"},
	{"compute", "compute", "v1/"},
	{"firestore", "firestore", "v1/"},
	{"iam", "iam", "v1/"},
	{"iam_beta", "iam", "v1/"},
	{"kms", "cloudkms", "v1/"},
	{"logging", "logging", "v2/"},
	{"monitoring", "monitoring", ""},
	{"pubsub", "pubsub", "v1/"},
	{"resource_manager", "cloudresourcemanager", "v1/"},
	{"secret_manager", "secretmanager", "v1/"},
	{"service_usage", "serviceusage", "v1/"},
}

// Provider is the block of the provider hashicorp/google that has all of its calls come here.
func (c *Cloud) Provider(region string) string {
	text := fmt.Sprintf("provider \"google\" {\n  project               = %q\n  region                = %q\n  access_token          = \"made-up\"\n  user_project_override = false\n\n  batching {\n    send_after = \"300ms\"\n  }\n\n", Project, region)
	for _, e := range endpoints {
		text += fmt.Sprintf("  %s_custom_endpoint = %q\n", e.option, c.Endpoint(e.api)+e.version)
	}
	return text + "}\n"
}
