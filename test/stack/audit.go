package stack

import (
	"fmt"
	"os"
	"path/filepath"
)

// auditPolicy asks for what the controller writes, and for nothing else. Of a new event the content is kept too: it says why
// the event was sent.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
  - level: Request
    users: ["system:serviceaccount:` + systemNamespace + ":" + controllerName + `"]
    verbs: [create]
    resources: [{group: "", resources: [events]}, {group: events.k8s.io, resources: [events]}]
  - level: Metadata
    users: ["system:serviceaccount:` + systemNamespace + ":" + controllerName + `"]
    verbs: [create, update, patch, delete, deletecollection]
  - level: None
`

// AuditLog is the file into which the API server of a stack with the option Audit writes: an audit.k8s.io/v1 Event a line.
func (cp *ControlPlane) AuditLog() string { return cp.logPath("audit") }

func (cp *ControlPlane) auditPolicyFile() string { return filepath.Join(cp.Dir, "audit-policy.yaml") }

func (cp *ControlPlane) writeAuditPolicy() error {
	if err := os.WriteFile(cp.auditPolicyFile(), []byte(auditPolicy), 0o644); err != nil {
		return fmt.Errorf("writing the audit policy: %w", err)
	}
	return nil
}

// auditFlags make the API server write each line at once: whoever counts them reads the file.
func (cp *ControlPlane) auditFlags() []string {
	if !cp.audit {
		return nil
	}
	return []string{
		"--audit-policy-file", cp.auditPolicyFile(), "--audit-log-path", cp.AuditLog(), "--audit-log-mode", "blocking",
		"--audit-log-maxsize", "0",
	}
}
