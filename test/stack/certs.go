package stack

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certificateLife is long enough for a stack that somebody leaves running.
const certificateLife = 365 * 24 * time.Hour

// pair is a certificate with its key.
type pair struct {
	cert            *x509.Certificate
	key             *ecdsa.PrivateKey
	certPEM, keyPEM []byte
}

// issue makes a key and a certificate signed by the authority; by itself where there is none.
func issue(template *x509.Certificate, authority *pair) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template.SerialNumber = serial
	template.NotBefore, template.NotAfter = now.Add(-time.Hour), now.Add(certificateLife)
	parent, signer := template, key
	if authority != nil {
		parent, signer = authority.cert, authority.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return &pair{
		cert: cert, key: key,
		certPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		keyPEM:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}, nil
}

func authorityTemplate(name string) *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
}

func clientTemplate(user string, groups ...string) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

// serverTemplate is the API server's: loopback, the first address of the service range, and the in-cluster names.
func serverTemplate() *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1)},
		DNSNames: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local"},
	}
}

// Names of the identities that a control plane needs.
const (
	idCA                = "ca"
	idFrontProxyCA      = "front-proxy-ca"
	idAPIServer         = "apiserver"
	idFrontProxy        = "front-proxy-client"
	idServiceAccounts   = "sa" // signs ServiceAccount tokens
	idAdmin             = "admin"
	idControllerManager = "kube-controller-manager"
	idScheduler         = "kube-scheduler"
)

// pki holds every certificate and key of one control plane, by name; files lie in dir as NAME.crt and NAME.key.
type pki struct {
	dir   string
	pairs map[string]*pair
}

// newPKI makes fresh keys and writes them into dir.
func newPKI(dir string) (*pki, error) {
	p := &pki{dir: dir, pairs: map[string]*pair{}}
	for _, identity := range []struct {
		name, authority string
		template        *x509.Certificate
	}{
		{idCA, "", authorityTemplate("gpufleet-local-ca")},
		{idFrontProxyCA, "", authorityTemplate("gpufleet-local-front-proxy-ca")},
		{idServiceAccounts, "", authorityTemplate("gpufleet-local-service-accounts")},
		{idAPIServer, idCA, serverTemplate()},
		{idFrontProxy, idFrontProxyCA, clientTemplate("front-proxy-client")},
		{idAdmin, idCA, clientTemplate("admin", "system:masters")},
		{idControllerManager, idCA, clientTemplate("system:kube-controller-manager")},
		{idScheduler, idCA, clientTemplate("system:kube-scheduler")},
	} {
		issued, err := issue(identity.template, p.pairs[identity.authority])
		if err != nil {
			return nil, fmt.Errorf("making the certificate %s: %w", identity.name, err)
		}
		p.pairs[identity.name] = issued
		if err := os.WriteFile(p.cert(identity.name), issued.certPEM, 0o644); err != nil {
			return nil, fmt.Errorf("writing the certificate %s: %w", identity.name, err)
		}
		if err := os.WriteFile(p.key(identity.name), issued.keyPEM, 0o600); err != nil {
			return nil, fmt.Errorf("writing the key %s: %w", identity.name, err)
		}
	}
	return p, nil
}

func (p *pki) cert(name string) string { return filepath.Join(p.dir, name+".crt") }
func (p *pki) key(name string) string  { return filepath.Join(p.dir, name+".key") }
