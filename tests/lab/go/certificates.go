package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const lifetime = 10 * 365 * 24 * time.Hour

// certificates writes into the directory of its first argument what one control plane needs:
// ca.crt, and server.crt with server.key for the names and addresses that follow, signed by it;
// accounts.key and accounts.pub, with which the tokens of service accounts are signed and checked.
// The key of the authority itself is thrown away.
func certificates(arguments []string) error {
	if len(arguments) < 2 {
		return errors.New("usage: controlplane certificates DIRECTORY NAME-OR-ADDRESS...")
	}
	directory, names := arguments[0], arguments[1:]
	authorityKey, err := newKey()
	if err != nil {
		return err
	}
	authority := certificate("healthd lab", 1)
	authority.IsCA = true
	authority.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	server := certificate("server", 2)
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, name := range names {
		if address := net.ParseIP(name); address != nil {
			server.IPAddresses = append(server.IPAddresses, address)
		} else {
			server.DNSNames = append(server.DNSNames, name)
		}
	}
	serverKey, err := newKey()
	if err != nil {
		return err
	}
	accountsKey, err := newKey()
	if err != nil {
		return err
	}
	return errors.Join(
		writeSigned(filepath.Join(directory, "ca.crt"), authority, authority, authorityKey.Public(), authorityKey),
		writeSigned(filepath.Join(directory, "server.crt"), server, authority, serverKey.Public(), authorityKey),
		writeKey(filepath.Join(directory, "server.key"), serverKey),
		writeKey(filepath.Join(directory, "accounts.key"), accountsKey),
		writePublic(filepath.Join(directory, "accounts.pub"), accountsKey.Public()),
	)
}

func newKey() (*ecdsa.PrivateKey, error) {
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

func certificate(name string, serial int64) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber:          big.NewInt(serial),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-time.Hour), // clocks differ
		NotAfter:              time.Now().Add(lifetime),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
	}
}

func writeSigned(path string, subject, issuer *x509.Certificate, public crypto.PublicKey, key crypto.Signer) error {
	der, err := x509.CreateCertificate(rand.Reader, subject, issuer, public, key)
	if err != nil {
		return err
	}
	return writePEM(path, "CERTIFICATE", der)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(path, "EC PRIVATE KEY", der)
}

func writePublic(path string, key crypto.PublicKey) error {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return err
	}
	return writePEM(path, "PUBLIC KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
