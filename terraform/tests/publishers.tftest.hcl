# Who may publish and read what, by an apply with a mocked provider: each account has a name of its own. What is
# known to a plan would be made up anew.

mock_provider "google" {
  mock_data "google_project" {
    defaults = { number = "123456789012" }
  }
  mock_data "google_secret_manager_secret_version" {
    defaults = { enabled = true, destroy_time = "" }
  }
  mock_resource "google_service_account" {
    defaults = {
      name   = "projects/example/serviceAccounts/account@example.iam.gserviceaccount.com"
      email  = "account@example.iam.gserviceaccount.com"
      member = "serviceAccount:account@example.iam.gserviceaccount.com"
    }
  }
  mock_resource "google_pubsub_topic" {
    defaults = { id = "projects/example/topics/made-up" }
  }
}

variables {
  project_id = "example"
  region     = "europe-west3"
  firestore  = { location = "eur3" }
  images = {
    webhook = "europe-docker.pkg.dev/example/billhook/webhook@sha256:0000000000000000000000000000000000000000000000000000000000000000"
    worker  = "europe-docker.pkg.dev/example/billhook/worker@sha256:0000000000000000000000000000000000000000000000000000000000000000"
  }
  alerts = { channels = ["projects/example/notificationChannels/1"], runbooks = "https://example.com/runbooks" }
}

# Two pools: letters runs the tasks, seats serves bookings and emits to reminders and to
# seat-feed. Applied, so that each account has a name of its own. With every answer made up, an
# apply also shows that nothing waits for itself. The queue ordered has a rate.
run "an_account_publishes_what_its_service_publishes_and_no_more" {
  command = apply

  variables {
    catalog_dir         = "../catalog/testdata/crooked"
    tasks_pool          = "letters"
    deletion_protection = false
    ops                 = { people = ["group:operators@example.com"], pauses = true }
    target_urls         = { POST_OFFICE_URL = "https://post-office.example" }
  }

  override_resource {
    target = google_service_account.service["webhook"]
    values = { member = "serviceAccount:webhook" }
  }
  override_resource {
    target = google_service_account.push["letters"]
    values = { name = "projects/example/serviceAccounts/push-letters@example.iam.gserviceaccount.com", email = "push-letters@example.iam.gserviceaccount.com", member = "serviceAccount:push-letters" }
  }
  override_resource {
    target = google_service_account.service["ops"]
    values = { email = "ops@example.iam.gserviceaccount.com", member = "serviceAccount:ops" }
  }
  override_resource {
    target = google_service_account.service["worker-letters"]
    values = { member = "serviceAccount:letters" }
  }
  override_resource {
    target = google_service_account.service["worker-seats"]
    values = { member = "serviceAccount:seats" }
  }

  assert {
    condition     = output.tasks_pool == "letters" && toset(keys(module.worker)) == toset(["letters", "seats"])
    error_message = "Two pools, of which that runs the tasks which the variable names."
  }
  assert {
    condition = { for id, q in local.made : id => join(" ", sort(values(q.topic_publishers))) if q.shared_topic == "" } == {
      bookings  = "serviceAccount:letters serviceAccount:webhook"
      reminders = "serviceAccount:letters serviceAccount:seats"
    }
    error_message = "A queue that is not enabled is not there. The publishers of a queue's own topic are the pools that emit to it, the pool of the tasks, and the webhook service where a source routes to it: seats not on its own bookings. The grants on a shared topic are the root's."
  }
  assert {
    condition = { for grant in google_pubsub_topic_iam_member.publishes : "${grant.topic} ${grant.member}" => grant.role } == {
      "halls serviceAccount:letters"     = "roles/pubsub.publisher"
      "seat-feed serviceAccount:letters" = "roles/pubsub.publisher"
      "seat-feed serviceAccount:seats"   = "roles/pubsub.publisher"
    }
    error_message = "The pool of the tasks alone publishes on a shared topic that no handler emits to and no source routes to, and with the pools that emit to it on an outbound topic. A topic without an enabled queue is not there; on unheard nobody publishes."
  }
  assert {
    condition = { for id, q in local.made : id => join(" ", values(q.dead_letter_publishers)) if !q.dead_letter.drop } == {
      bookings = "serviceAccount:seats"
      ordered  = "serviceAccount:letters"
    }
    error_message = "On a dead-letter topic publishes the worker of its queue's pool, besides Pub/Sub's agent."
  }
  assert {
    condition = { for pool, w in module.worker : pool => "${w.env.ALARM_URL} ${w.env.ALARM_SERVICE_ACCOUNT}" } == {
      for pool in ["letters", "seats"] : pool => "${local.worker_urls["letters"]} push-letters@example.iam.gserviceaccount.com"
    }
    error_message = "Both pools have their kept messages released by the worker that runs the tasks, in the name of who may call it."
  }
  assert {
    condition     = google_cloud_scheduler_job.tasks[0].http_target[0].oidc_token[0].service_account_email == module.worker["seats"].env.ALARM_SERVICE_ACCOUNT
    error_message = "The alarm's token is for whom the scheduler's is for."
  }
  assert {
    condition = { for pool, grant in google_cloud_tasks_queue_iam_member.worker_asks : pool => "${grant.name} ${grant.role} ${grant.member}" } == {
      letters = "billhook-alarm roles/cloudtasks.enqueuer serviceAccount:letters"
      seats   = "billhook-alarm roles/cloudtasks.enqueuer serviceAccount:seats"
    }
    error_message = "Every worker may put tasks on the one queue."
  }
  assert {
    condition = { for pool, grant in google_service_account_iam_member.worker_asks_as_push : pool => "${grant.service_account_id} ${grant.role} ${grant.member}" } == {
      letters = "projects/example/serviceAccounts/push-letters@example.iam.gserviceaccount.com roles/iam.serviceAccountUser serviceAccount:letters"
      seats   = "projects/example/serviceAccounts/push-letters@example.iam.gserviceaccount.com roles/iam.serviceAccountUser serviceAccount:seats"
    }
    error_message = "Every worker may have a token made for the push account of the tasks' pool, and for no other."
  }
  assert {
    condition     = [for key in keys(google_secret_manager_secret_iam_member.reads) : key if !endswith(key, "/webhook")] == ["POST_OFFICE_SECRET/worker-letters"]
    error_message = "The secret of a target is read by the pool that posts to it, letters."
  }
  assert {
    condition     = { for pool, w in module.worker : pool => join(" ", sort([for e in w.service.template[0].containers[0].env : e.name if length(e.value_source) > 0])) } == { letters = "POST_OFFICE_SECRET", seats = "" }
    error_message = "A worker is given the secrets that its account may read."
  }
  assert {
    condition     = { for pool, w in module.worker : pool => lookup(w.env, "POST_OFFICE_URL", "") } == { letters = "https://post-office.example", seats = "" }
    error_message = "The pool that posts to a target knows where it is."
  }
  assert {
    condition = (
      module.ops[0].service.ingress == "INGRESS_TRAFFIC_ALL" && module.ops[0].service.template[0].containers[0].image == var.images.worker &&
      alltrue([for e in module.ops[0].service.template[0].containers[0].env : length(e.value_source) == 0]) &&
      module.ops[0].env.SERVES == "people" && module.ops[0].env.OPS_AUDIENCE == "/projects/123456789012/locations/europe-west3/services/billhook-ops" &&
      local.scaling["billhook-ops"] == { min = 0, max = 1 }
    )
    error_message = "The service for people is the workers' image, keeps no instance and reads no secret."
  }
  assert {
    condition = alltrue([
      for w in values(module.worker) : w.service.ingress == "INGRESS_TRAFFIC_INTERNAL_ONLY" && w.env.SERVES == "pushes" && lookup(w.env, "PUSH_BASE_URL", "") == ""
    ])
    error_message = "Workers are reached from inside, answer nobody but Pub/Sub and the tasks, and pause nothing."
  }
  assert {
    condition = toset(keys(google_pubsub_subscription_iam_member.ops_pauses)) == toset(keys(module.queue)) && alltrue([
      for grant in concat(
        values(google_pubsub_subscription_iam_member.ops_pauses), values(google_service_account_iam_member.ops_names_push),
        [google_project_iam_member.uses_database["ops"]],
        [for key, grant in google_pubsub_subscription_iam_member.sees_subscriptions : grant if endswith(key, "/ops")],
      ) : grant.member == "serviceAccount:ops"
    ]) && !anytrue([for grant in values(google_pubsub_topic_iam_member.publishes) : grant.member == "serviceAccount:ops"])
    error_message = "It pauses what is pushed, and publishes nowhere."
  }
  assert {
    condition     = module.webhook[0].env.INGEST_DATABASE == "billhook-ingest" && lookup(module.webhook[0].env, "FIRESTORE_DATABASE", "") == ""
    error_message = "It knows its own database alone."
  }
  assert {
    condition     = google_firestore_field.unindexed["rateBlocks.expire_at"].database == "billhook-ingest" && google_firestore_field.unindexed["rateBlocks.expire_at"].field == "expire_at"
    error_message = "What it wrote is removed."
  }
  assert {
    condition     = output.database == "billhook"
    error_message = "There is a database."
  }
}
