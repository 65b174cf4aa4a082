package contract

// Event types of paynow.v1 that are handled, or whose rules go beyond their fields.
const (
	OrderPaid             = "order.paid"
	OrderRefunded         = "order.refunded"
	OrderChargeback       = "order.chargeback"
	OrderChargebackClosed = "order.chargeback_closed"
	SubscriptionActivated = "subscription.activated"
	SubscriptionRenewed   = "subscription.renewed"
	SubscriptionCanceled  = "subscription.canceled"
	TrialActivated        = "trial.activated"
	TrialCompleted        = "trial.completed"
	TrialCanceled         = "trial.canceled"
)

// Actions of envelope.v1 that tell of a subscription (billing queues, section 4) and of its ends.
const (
	ActionInitial        = "initial"
	ActionRenewal        = "renewal"
	ActionCancellation   = "cancellation"
	ActionTrial          = "trial"
	ActionTrialCompleted = "trial_completed"
	ActionTrialCanceled  = "trial_canceled"
)
