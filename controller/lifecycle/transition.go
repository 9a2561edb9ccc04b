package lifecycle

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// EventName names the one event of a transition. Two controllers, or one before
// and after a restart, arrive at the same name, so that the second create is
// refused and nothing is told twice. what is the name of the object; uid and
// since, at whole seconds as the API server keeps it, tell transitions apart.
func EventName(what string, uid types.UID, since time.Time) string {
	sum := sha256.Sum256([]byte(string(uid) + "/" + since.UTC().Format(time.RFC3339)))
	// Object names end at 253 characters, and node names may use them all.
	stem := strings.TrimRight(what[:min(len(what), 253-17)], "-.")
	return stem + "." + hex.EncodeToString(sum[:8])
}
