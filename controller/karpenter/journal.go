package karpenter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// journal is the launch journal of a NodeClaim: what was asked of the cloud, written before it is asked. Whatever
// crashes, the next reader finds the token and asks again with it, so that a claim never gets a second machine.
type journal struct {
	// Attempt counts from 1; each has its own token.
	Attempt      int                   `json:"attempt"`
	Token        string                `json:"token"`
	InstanceType string                `json:"instanceType"`
	Zone         string                `json:"zone"`
	Subnet       string                `json:"subnet"`
	CapacityType v1alpha1.CapacityType `json:"capacityType"`
	Image        string                `json:"image"`
	// RequestHash is of the bytes that were sent.
	RequestHash string      `json:"requestHash"`
	AskedAt     metav1.Time `json:"askedAt"`
	// Refused is the cloud's definite no: this token started nothing and never will.
	Refused string `json:"refused,omitempty"`
}

// open says whether the attempt may have started an instance.
func (j *journal) open() bool { return j != nil && j.Refused == "" }

// readJournal returns the journal of a claim, nil where nothing was ever asked.
func readJournal(claim *karpv1.NodeClaim) (*journal, error) {
	text, found := claim.Annotations[v1alpha1.AnnotationLaunch]
	if !found {
		return nil, nil
	}
	entry := &journal{}
	if err := json.Unmarshal([]byte(text), entry); err != nil {
		return nil, fmt.Errorf("annotation %s of NodeClaim %s is not a launch journal: %w", v1alpha1.AnnotationLaunch, claim.Name, err)
	}
	return entry, nil
}

// writeJournal writes the journal and our finalizer in one patch, with the claim's resource version as the lock. It
// works on a copy: patching the object that core passed would change its resource version, and core's own patch of the
// launch would then fail with a conflict. Where somebody else wrote the claim meanwhile, it reads past the cache and
// writes again, unless the journal itself was changed or the claim is going.
func writeJournal(ctx context.Context, c client.Client, live client.Reader, claim *karpv1.NodeClaim, entry *journal) (*karpv1.NodeClaim, error) {
	text, err := json.Marshal(entry)
	if err != nil {
		return nil, fmt.Errorf("writing the launch journal of NodeClaim %s: %w", claim.Name, err)
	}
	before := claim.Annotations[v1alpha1.AnnotationLaunch]
	current := claim
	var written *karpv1.NodeClaim
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		written = current.DeepCopy()
		if written.Annotations == nil {
			written.Annotations = map[string]string{}
		}
		written.Annotations[v1alpha1.AnnotationLaunch] = string(text)
		controllerutil.AddFinalizer(written, v1alpha1.FinalizerInstance)
		conflict := c.Patch(ctx, written, client.MergeFromWithOptions(current, client.MergeFromWithOptimisticLock{}))
		if !apierrors.IsConflict(conflict) {
			return conflict
		}
		current = &karpv1.NodeClaim{}
		if err := live.Get(ctx, client.ObjectKeyFromObject(claim), current); err != nil {
			return err
		}
		if current.UID != claim.UID || !current.DeletionTimestamp.IsZero() || current.Annotations[v1alpha1.AnnotationLaunch] != before {
			return errors.New("it is going or somebody else launches for it")
		}
		return conflict
	})
	if err != nil {
		return nil, fmt.Errorf("writing the launch journal of NodeClaim %s: %w", claim.Name, err)
	}
	return written, nil
}

// token is the same for the same attempt, in 64 characters: a crash before the journal is read back must not change it.
func token(claim *karpv1.NodeClaim, attempt int, chosen choice) string {
	parts := []string{string(claim.UID), fmt.Sprint(attempt), chosen.Name, chosen.zone, string(chosen.capacityType)}
	sum := sha256.Sum256([]byte(strings.Join(parts, "|")))
	return hex.EncodeToString(sum[:])
}

// lagAllowance is how long a cloud may not know an instance that it has just started. Until it is over, "not found" by
// token proves nothing. AWS documents eventual consistency of the EC2 API without a bound; minutes are rare.
const lagAllowance = 2 * time.Minute
