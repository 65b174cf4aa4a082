package pubsub

import "billhook/internal/platform/finding"

// What mends most of it.
const (
	apply = "Apply Terraform again; on an emulator run billhook admin provision."
	// anew: these settings cannot be changed.
	anew = "It cannot be changed. Once the subscription is empty (billhook queues), delete it and apply Terraform again; on an emulator run billhook admin provision."
	ask  = "Ask who has changed it, and apply Terraform again; on an emulator run billhook admin provision."
)

// What Examine finds, what each does to a message, and what to do.
var (
	TopicMissing         = finding.New("topic_missing", "What is published to it is refused: the webhook service answers 503, and a sender that gives up loses the event.", apply)
	SubscriptionMissing  = finding.New("subscription_missing", "Nobody is given what is published, and no copy of it is kept.", apply+" What was published meanwhile has to be sent again.")
	HoldMissing          = finding.New("hold_subscription_missing", "Dead letters have no copy but the store's: one that the worker cannot keep in time is gone.", apply)
	LettersPushMissing   = finding.New("dead_letter_push_missing", "Dead letters do not reach the store: they are neither listed nor replayed, and no alert counts them there.", apply+" The hold subscription has those from meanwhile.")
	LettersUnkept        = finding.New("dead_letters_unkept", "No subscription keeps what is published there: a message that cannot be handled is gone for good.", apply)
	LeftOver             = finding.New("left_over", "The queue is not enabled, so the worker answers 404 to every push, and the messages wait until they are too old.", "Take its endpoint away (billhook admin provision does), or enable the queue.")
	MessagesUnkept       = finding.New("messages_unkept", "The queue is not enabled and has no subscription: what is published to its topic is gone without a trace, and no publisher is told.", "Delete the topic, or enable the queue.")
	WrongTopic           = finding.New("wrong_topic", "It takes other messages than its queue's, and the queue's own reach nobody.", anew)
	Detached             = finding.New("detached", "It was cut off from its topic: nothing reaches it any more.", "Delete it, and apply Terraform again. What was published meanwhile has to be sent again.")
	Expiring             = finding.New("expiring", "Without a message for that long Pub/Sub deletes it, and everything published after that is lost.", apply)
	NotPushed            = finding.New("not_pushed", "It is a pull subscription and nobody pulls: its messages wait until they are too old.", apply)
	Pushed               = finding.New("pushed", "It is to keep copies and pushes them away instead.", ask)
	WrongEndpoint        = finding.New("wrong_endpoint", "The pushes go somewhere else: the queue's messages are not handled, or not by this worker.", ask)
	Unwrapped            = finding.New("unwrapped", "The push comes without its envelope, so the worker cannot read it and refuses every message.", ask)
	WrongAccount         = finding.New("wrong_service_account", "The worker answers 403 to every push: nothing of the queue is handled.", ask)
	WrongAudience        = finding.New("wrong_audience", "The worker answers 401 to every push: nothing of the queue is handled.", ask)
	OrderingOff          = finding.New("ordering_off", "Events of one customer overtake each other: a refund can be handled before its order.", anew)
	OrderingOn           = finding.New("ordering_on", "One slow message holds up others that have nothing to do with it.", anew)
	WrongFilter          = finding.New("wrong_filter", "Messages bound to the queue are passed by, or messages that are not bound to it arrive and are dropped.", anew)
	DeadlineBelowHandler = finding.New("ack_deadline_below_handler", "Messages are delivered again while their handler still works on them: answers are late, and attempts are used up.", apply)
	WrongDeadline        = finding.New("wrong_ack_deadline", "A message of a worker that is gone comes back sooner or later than its queue is built for.", apply)
	WrongRetryPolicy     = finding.New("wrong_retry_policy", "A failed message comes back faster or slower than its queue says: a dependency in trouble is hammered, or a customer waits.", apply)
	ShortRetention       = finding.New("short_retention", "A message that cannot be delivered is deleted that much earlier than the catalog promises.", apply)
	NoDeadLetterPolicy   = finding.New("dead_letter_policy_missing", "A message that no worker can answer, such as one that kills it, is delivered for ever and holds up its ordering key.", apply)
	WrongDeadLetters     = finding.New("wrong_dead_letter_policy", "A message that no worker can answer is given up too early or too late, or is put where nobody looks.", apply)
	DeadLetterPolicy     = finding.New("dead_letter_policy_unwanted", "On Google's emulator an ordered subscription stops pushing after its first dead letter.", "Delete the subscription, and run billhook admin provision.")
	NoPublisherGrant     = finding.New("publisher_grant_missing", "Pub/Sub cannot write the dead letter, so a message that no worker can answer is delivered for ever.", granting)
	NoSubscriberGrant    = finding.New("subscriber_grant_missing", "Pub/Sub cannot take the message off its subscription, so a message that no worker can answer is delivered for ever.", granting)
	NoDoorPublishes      = finding.New("door_grant_missing", "The webhook service may not publish here: it answers 503 to what is for this topic, and a sender that gives up loses the event.", granting)
	NoWorkerPublishes    = finding.New("worker_grant_missing", "The worker may not publish here: what its handlers emit waits in the outbox, and its replays and delayed messages wait with it.", granting)
	NoLettersPublished   = finding.New("dead_letter_grant_missing", "The worker may not publish the queue's dead letters: an event that cannot succeed comes again, without its reason, until Pub/Sub gives it up.", granting)
	Stray                = finding.New("stray_subscription", "The catalog has no such subscription. Its pushes are answered 404, or handled twice; without an endpoint its messages wait for nobody until they are too old.", "See whether messages in it are still wanted (gcloud pubsub subscriptions pull); then delete it.")
	Foreign              = finding.New("foreign_subscription", "The catalog has no such subscription, and it gets a copy of what is published here. Whoever reads it sees the events; if nobody does, the copies are kept and paid for until they are too old.", "Ask who made it. Delete it, or name it in --known.")
	StrayTopic           = finding.New("stray_topic", "The catalog has no such topic: what is published there is accepted, and reaches no queue.", "See who publishes there, and delete it.")
	PauseUndone          = finding.New("pause_undone", "The queue is paused, and its messages are pushed all the same: what it was paused for goes on. Somebody has given the subscription its endpoint past Billhook.", "Pause it again (billhook queues pause), or resume it if it need not be paused.")
	PauseUnrecorded      = finding.New("pause_unrecorded", "Its messages wait until they are too old, and nobody is recorded to have paused the queue: nobody knows when to resume it.", "Ask who has paused it; then resume it (billhook queues resume).")
	PauseUnread          = finding.New("pause_unread", "Its messages wait until they are too old. Who has paused the queue is not known: the worker could not be asked.", "Ask again where the worker can be asked (--server, OPS_TOKEN).")
	PauseUnmarked        = finding.New("pause_unmarked", "The queue is paused, and nothing at Pub/Sub says so: the next run of provision or Terraform gives the subscription its endpoint.", "Pause it again (billhook queues pause).")
	PauseMarkLeft        = finding.New("pause_mark_left", "The queue is not paused and its messages are pushed; for its mark Terraform refuses to plan.", "Resume it again (billhook queues resume).")
)

const granting = "Apply Terraform again, and ask who took the grant away. Google takes some minutes to heed a new grant."
