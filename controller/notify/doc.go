// Package notify tells people, by webhook, that pods are held back from a pool and that they no longer are, so that a cap
// that is reached reaches somebody who watches no metrics. Whoever knows calls Notify at each look; what is worth a message,
// and when, is decided here. No Kubernetes client comes in.
//
// A webhook hears of a reason of a pool once when it begins, after it has held for minHeld; again every repeat while it
// lasts; and once when it has been over for minHeld, if it was told of the beginning. A hold that comes back before that
// goes on. Each webhook sends one notice at a time, always of the latest state, and waits for no other webhook.
//
// All of this is remembered in memory. A controller that starts anew tells once more of what still holds, and never of the
// end of what ended while none ran.
//
// The format generic sends a JSON object. Its fields are a promise:
//
//	id        of this notice: one that arrives twice, since an answer was lost, has the same
//	status    held or ended
//	reminder  0, or the number of the reminder of the same hold, from 1
//	cluster   name of the cluster
//	pool      name of the GPUNodePool
//	workload  its class: Inference, Batch or Research
//	reason    why pods are held, of v1alpha1.HoldReasons
//	pods      how many pods are held; 0 when it ended
//	gpus      how many physical GPUs they need; 0 when it ended
//	since     when the first of the pods began to wait, RFC 3339 in UTC
//	time      when the controller saw what the notice says, RFC 3339 in UTC
//	message   what was found, with the numbers
//	remedy    what would free the pods; empty when it ended
//	command   what to run next
//
// The format slack sends {"text": "..."}, escaped for Slack.
//
// A webhook's URL is a secret, often the only one that it has. It is read from its file for each notice, and nothing that
// this package logs, counts or returns holds any of it: errors of net/http, of net/url and of go-retryablehttp carry URLs
// or hosts, and are replaced by words of our own.
package notify
