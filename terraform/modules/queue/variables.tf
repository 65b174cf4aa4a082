variable "project_id" {
  description = "The project's id."
  type        = string
}

variable "queue" {
  description = <<-EOT
    The queue, as the catalog module has it, and what becomes of it here. state is runs; paused, as billhook
    queues pause left it; or kept: off, with its topic and subscriptions, and no worker perhaps. protected is
    whether Terraform refuses to delete these, with the messages in them. The publishers are IAM members under
    names that are known at plan time. A shared topic, and the grants on it, are made where the module is used.
  EOT
  type = object({
    state                      = optional(string, "runs")
    protected                  = optional(bool, true)
    topic_publishers           = optional(map(string), {})
    dead_letter_publishers     = optional(map(string), {})
    id                         = string
    topic                      = string
    shared_topic               = string
    push_subscription          = string
    push_path                  = string
    filter                     = string
    enable_message_ordering    = bool
    ack_deadline_seconds       = number
    message_retention_duration = string
    broker                     = object({ minimum_backoff = string, maximum_backoff = string, max_delivery_attempts = number })
    dead_letter = object({
      drop              = bool
      topic             = optional(string)
      retention         = optional(string)
      hold_subscription = optional(string)
      push_subscription = optional(string)
      push_path         = optional(string)
    })
  })
}

variable "push" {
  description = "The worker's address, without a path, and the account and the audience of a push's token."
  type        = object({ base_url = string, account = optional(string), audience = optional(string) })
}

variable "agent" {
  description = "Pub/Sub's own account, as an IAM member; null is Google's emulator, without IAM and with faults."
  type        = string
  default     = null
}

variable "message_storage" {
  description = "The regions in which messages may be stored, whether they may pass through these alone, and the key that encrypts them. Without regions, and with a key of null, Pub/Sub chooses."
  type        = object({ regions = list(string), enforce_in_transit = bool, kms_key = string })
  default     = { regions = [], enforce_in_transit = false, kms_key = null }
}

variable "labels" {
  description = "Labels of topics and subscriptions."
  type        = map(string)
  default     = {}
}

variable "catalog_hash" {
  description = "The hash of the catalog that the queue is of, for a label of its push subscription; empty: there is no label."
  type        = string
  default     = ""
}
