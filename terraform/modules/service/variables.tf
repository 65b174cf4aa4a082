variable "project_id" {
  description = "The project's id."
  type        = string
}

variable "region" {
  description = "Where the service runs."
  type        = string
}

variable "name" {
  description = "The service's name."
  type        = string

  validation {
    condition     = can(regex("^[a-z]([a-z0-9-]{0,47}[a-z0-9])?$", var.name))
    error_message = "A service's name has at most 49 of a-z, 0-9 and -, begins with a letter, and does not end with -."
  }
}

variable "image" {
  description = "The container image, by digest: a tag can be moved under a running revision."
  type        = string

  validation {
    condition     = can(regex("@sha256:[0-9a-f]{64}$", var.image))
    error_message = "The image must be named by its digest: <registry>/<image>@sha256:<64 hex digits>."
  }
}

variable "service_account" {
  description = "The e-mail address of the service's own account."
  type        = string
}

variable "ingress" {
  description = "The ingress of the service: INGRESS_TRAFFIC_ALL, or INGRESS_TRAFFIC_INTERNAL_ONLY, which lets in Pub/Sub and Cloud Scheduler of the same project."
  type        = string

  validation {
    condition     = contains(["INGRESS_TRAFFIC_ALL", "INGRESS_TRAFFIC_INTERNAL_ONLY", "INGRESS_TRAFFIC_INTERNAL_LOAD_BALANCER"], var.ingress)
    error_message = "ingress must be INGRESS_TRAFFIC_ALL, INGRESS_TRAFFIC_INTERNAL_ONLY or INGRESS_TRAFFIC_INTERNAL_LOAD_BALANCER."
  }
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
  default     = {}
}

variable "extra_env" {
  description = "More environment variables, none of them secret."
  type        = map(string)
  default     = {}

  validation {
    condition     = length(setintersection(keys(var.extra_env), concat(keys(var.env), keys(var.secrets)))) == 0
    error_message = "extra_env has ${join(", ", setintersection(keys(var.extra_env), concat(keys(var.env), keys(var.secrets))))}, which the module itself sets."
  }
  validation {
    condition     = alltrue([for name in keys(var.extra_env) : can(regex("^[A-Za-z_][A-Za-z0-9_]*$", name)) && !can(regex("^(HOST|PORT|METRICS_PORT|K_.*|CLOUD_RUN_.*)$", name))])
    error_message = "extra_env must have names of letters, digits and _, and neither HOST, PORT, METRICS_PORT nor Cloud Run's own."
  }
}

variable "secrets" {
  description = "Environment variables from Secret Manager: the secret's id and the number of its version. A number, not latest: a revision's secrets must not change under it."
  type        = map(object({ secret = string, version = string }))
  default     = {}

  validation {
    condition     = alltrue([for s in values(var.secrets) : can(regex("^[1-9][0-9]*$", s.version))])
    error_message = "A secret's version must be a number."
  }
}

variable "scaling" {
  description = "Instances of the service at least and at most, of all its revisions together."
  type        = object({ min = number, max = number })

  validation {
    condition     = 0 <= var.scaling.min && var.scaling.min <= var.scaling.max && 1 <= var.scaling.max && var.scaling.max <= 1000
    error_message = "scaling must have 0 <= min <= max, and max 1 to 1000."
  }
}

variable "resources" {
  description = "CPUs and memory of an instance. With cpu_idle, an instance has its CPU, and pays for it, during requests only."
  type        = object({ cpu = string, memory = string, cpu_idle = bool })
}

variable "concurrency" {
  description = "Requests that one instance serves at once."
  type        = number

  validation {
    condition     = 1 <= var.concurrency && var.concurrency <= 1000
    error_message = "concurrency must be 1 to 1000."
  }
}

variable "timeout_seconds" {
  description = "The time after which Cloud Run ends a request. It is above every deadline of the program, so the program answers first."
  type        = number

  validation {
    condition     = 1 <= var.timeout_seconds && var.timeout_seconds <= 3600
    error_message = "timeout_seconds must be 1 to 3600."
  }
}

variable "traffic" {
  description = "Where requests go, in percent: a revision by its name, or the latest one where the name is empty."
  type        = list(object({ revision = optional(string, ""), percent = number }))
  default     = [{ percent = 100 }]

  validation {
    condition     = sum(concat([0], var.traffic[*].percent)) == 100 && alltrue([for t in var.traffic : 0 < t.percent && t.percent == floor(t.percent)])
    error_message = "traffic must be whole percents above 0, 100 together."
  }
}

variable "redeploy" {
  description = "A label of the revision. Another value makes another revision of the same configuration: after a failed update Terraform sees no difference, and nothing tries again."
  type        = string
  default     = ""

  validation {
    condition     = can(regex("^[a-z0-9_-]{0,63}$", var.redeploy))
    error_message = "redeploy must be at most 63 of a-z, 0-9, _ and -."
  }
}

variable "vpc" {
  description = "The network of the service's outgoing requests, a subnetwork of it, or both; null is none. With egress ALL_TRAFFIC every request goes through it, with PRIVATE_RANGES_ONLY those to private addresses."
  type = object({
    network    = optional(string)
    subnetwork = optional(string)
    egress     = optional(string, "PRIVATE_RANGES_ONLY")
    tags       = optional(list(string), [])
  })
  default = null
}

variable "encryption_key" {
  description = "The key of Cloud KMS that encrypts the images of the service's revisions; null is Google's own."
  type        = string
  default     = null
}

variable "labels" {
  description = "Labels of the service."
  type        = map(string)
  default     = {}
}
