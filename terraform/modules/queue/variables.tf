variable "installed" {
  description = <<-EOT
    What the queues of an installation have in common: the project's id, labels, the hash of the catalog for a
    label of push subscriptions, Pub/Sub's own account, as an IAM member, and where messages are stored: in
    which regions, whether they may pass through these alone, and by which key. Without regions, and without a
    key, Pub/Sub chooses. Without an account it is Google's emulator, which has no IAM, and has faults.
  EOT
  type = object({
    project_id   = string
    labels       = optional(map(string), {})
    catalog_hash = optional(string)
    agent        = optional(string)
    storage = optional(object({ regions = list(string), enforce_in_transit = bool }), {
      regions = [], enforce_in_transit = false
    })
    kms_key = optional(string)
  })
}

variable "queue" {
  description = <<-EOT
    The queue, as the catalog module has it, and what becomes of it here. state is runs; paused, as billhook
    queues pause left it; or kept: off, with its topic and subscriptions, and no worker perhaps. protected is
    whether Terraform refuses to delete these, with the messages in them. The publishers are IAM members under
    names that are known at plan time. A shared topic, and its grants, are made where the module is used.
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
