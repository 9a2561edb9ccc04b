// Package certs keeps the webhook's own serving certificate where nobody else
// does: a certificate authority and a certificate in one Secret, the bundle
// that verifies it in one ValidatingWebhookConfiguration, and both renewed
// long before they expire.
//
// Every replica runs a Keeper, and none leads: each write carries the resource
// version that it was decided on, so of several only the first counts. A new
// authority is announced before anybody shows a certificate that it signed,
// and an old one stays in the bundle for as long as one of its certificates
// could still be shown.
//
// It serves nothing. What to show is handed over as files, which outlive the
// process: while the API server is away, the webhook goes on with what it has.
package certs
