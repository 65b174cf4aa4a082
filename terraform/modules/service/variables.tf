variable "installed" {
  description = "What the services of an installation have in common: the project's id, the region, labels, and the key of Cloud KMS that encrypts the images of revisions; null is Google's own."
  type        = object({ project_id = string, region = string, labels = map(string), encryption_key = string })
}

variable "name" {
  description = "The service's name."
  type        = string
}

variable "service_account" {
  description = "The e-mail address of the service's own account."
  type        = string
}

variable "ingress" {
  description = "The ingress of the service. INGRESS_TRAFFIC_INTERNAL_ONLY lets in Pub/Sub and Cloud Scheduler of the same project."
  type        = string
}

variable "public" {
  description = "Whether anybody may call the service: then the program itself checks its callers. Otherwise Cloud Run does."
  type        = bool
  default     = false
}

variable "people" {
  description = "The IAM members that Identity-Aware Proxy lets in, which then stands before the service and is an invoker; null: it does not stand there."
  type        = list(string)
  default     = null
}

variable "audiences" {
  description = "Custom audiences that a caller's token may name, besides the service's own address."
  type        = list(string)
  default     = []
}

variable "invokers" {
  description = "The callers of the service: IAM members under names that are known at plan time."
  type        = map(string)
  default     = {}
}

variable "env" {
  description = "Environment variables, none of them secret."
  type        = map(string)
}

variable "secrets" {
  description = "Environment variables from Secret Manager: the secret's id and the number of its version. A number, not latest: a revision's secrets must not change under it."
  type        = map(object({ secret = string, version = string }))

  validation {
    condition     = alltrue([for s in values(var.secrets) : can(regex("^[1-9][0-9]*$", s.version))])
    error_message = "A secret's version must be a number."
  }
}

variable "scaling" {
  description = "Instances of the service at least and at most, of all its revisions together."
  type        = object({ min = number, max = number })
}

variable "resources" {
  description = "CPUs and memory of an instance. With cpu_idle, an instance has its CPU, and pays for it, during requests only."
  type        = object({ cpu = string, memory = string, cpu_idle = bool })
}

variable "concurrency" {
  description = "Requests that one instance serves at once."
  type        = number
}

variable "timeout_seconds" {
  description = "The time after which Cloud Run ends a request. It is above every deadline of the program, so the program answers first."
  type        = number
}

variable "vpc" {
  description = "The network of the service's outgoing requests, a subnetwork of it, or both; null is none."
  type        = object({ network = optional(string), subnetwork = optional(string), egress = optional(string), tags = optional(list(string)) })
  default     = null
}

variable "revision" {
  description = <<-EOT
    What runs: the image by digest, since a tag can be moved under a running revision, and more environment variables.
    Another value of redeploy makes another revision of the same configuration: after a failed update Terraform sees no
    difference, and nothing tries again. traffic is where requests go, in percent: a revision by its name, or the latest
    one where the name is empty.
  EOT
  type = object({
    image    = string
    env      = optional(map(string), {})
    redeploy = optional(string, "")
    traffic  = optional(list(object({ revision = optional(string, ""), percent = number })), [{ percent = 100 }])
  })

  validation {
    condition     = can(regex("@sha256:[0-9a-f]{64}$", var.revision.image))
    error_message = "The image must be named by its digest: <registry>/<image>@sha256:<64 hex digits>."
  }
  validation {
    condition     = length(setintersection(keys(var.revision.env), concat(keys(var.env), keys(var.secrets)))) == 0
    error_message = "env has ${join(", ", setintersection(keys(var.revision.env), concat(keys(var.env), keys(var.secrets))))}, which the module itself sets."
  }
}
