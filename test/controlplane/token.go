package controlplane

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/keyutil"
)

// Token signs a token of a Pod's ServiceAccount, bound to the Pod, that expires when
// the test says so. TokenRequest issues none that expire within ten minutes.
func (s *Server) Token(pod *corev1.Pod, accountUID string, expires time.Time) (string, error) {
	pem, err := os.ReadFile(filepath.Join(s.dir, "accounts.key"))
	if err != nil {
		return "", err
	}
	key, err := keyutil.ParsePrivateKeyPEM(pem)
	if err != nil {
		return "", err
	}
	private, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return "", errors.New("the key that signs ServiceAccount tokens is not ECDSA")
	}
	type object map[string]any
	claims := object{
		"iss": issuer, "aud": []string{issuer},
		"sub": "system:serviceaccount:" + pod.Namespace + ":" + pod.Spec.ServiceAccountName,
		"iat": expires.Add(-time.Hour).Unix(), "nbf": expires.Add(-time.Hour).Unix(), "exp": expires.Unix(),
		"kubernetes.io": object{
			"namespace":      pod.Namespace,
			"pod":            object{"name": pod.Name, "uid": pod.UID},
			"serviceaccount": object{"name": pod.Spec.ServiceAccountName, "uid": accountUID},
		},
	}
	return sign(private, object{"alg": "ES256", "typ": "JWT"}, claims)
}

// sign makes a JSON web token: RFC 7515, and RFC 7518 3.4 for the signature's form.
func sign(key *ecdsa.PrivateKey, header, claims map[string]any) (string, error) {
	h, err1 := json.Marshal(header)
	c, err2 := json.Marshal(claims)
	if err := errors.Join(err1, err2); err != nil {
		return "", err
	}
	encode := base64.RawURLEncoding.EncodeToString
	text := encode(h) + "." + encode(c)
	digest := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	if err != nil {
		return "", err
	}
	signature := append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	return text + "." + encode(signature), nil
}
