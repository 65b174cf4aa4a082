variable "installed" {
  description = <<-EOT
    What the services of an installation have in common: the project's id, the region, labels, and the key of
    Cloud KMS that encrypts the images of revisions; null is Google's own.
  EOT
  type        = object({ project_id = string, region = string, labels = map(string), encryption_key = string })
}

variable "service" {
  description = <<-EOT
    The service, under the account of this e-mail address. INGRESS_TRAFFIC_INTERNAL_ONLY lets in Pub/Sub and
    Cloud Scheduler of the same project. With public anybody may call it, and the program itself checks its
    callers; else Cloud Run does, by custom audiences of their tokens and by invokers, IAM members under names
    that are known at plan time. people are the members that Identity-Aware Proxy lets in, which then stands
    before the service; null: it does not. env has nothing secret; secrets are read at the number of a
    version, since a revision's must not change under it. With cpu_idle an instance has its CPU, and pays for
    it, during requests only. timeout_seconds is above every deadline of the program, which so answers first.
    vpc is the network of outgoing requests, a subnetwork of it, or both; null is none.
  EOT
  type = object({
    name            = string
    account         = string
    ingress         = string
    public          = optional(bool, false)
    people          = optional(list(string))
    audiences       = optional(list(string), [])
    invokers        = optional(map(string), {})
    env             = map(string)
    secrets         = optional(map(object({ secret = string, version = string })), {})
    scaling         = object({ min = number, max = number })
    resources       = object({ cpu = string, memory = string, cpu_idle = bool })
    concurrency     = number
    timeout_seconds = number
    vpc = optional(object({
      network = optional(string), subnetwork = optional(string), egress = string, tags = optional(list(string))
    }))
  })
}

variable "revision" {
  description = <<-EOT
    What runs: the image by digest, since a tag can be moved under a running revision, and more environment
    variables. Another value of redeploy makes another revision of the same configuration: after a failed
    update Terraform sees no difference, and nothing tries again. traffic is where requests go, in percent: a
    revision by its name, or the latest one where the name is empty.
  EOT
  type = object({
    image    = string
    env      = optional(map(string), {})
    redeploy = optional(string, "")
    traffic  = optional(list(object({ revision = optional(string, ""), percent = number })), [{ percent = 100 }])
  })

  validation {
    condition = alltrue([
      for name in keys(var.revision.env) :
      !contains(keys(var.service.env), name) && !contains(keys(var.service.secrets), name)
    ])
    error_message = "env has a variable of those that the service has already."
  }
}
