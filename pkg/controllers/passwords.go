package controllers

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	passwordsEvery  = time.Minute
	passwordsRetry  = 2 * time.Second
	passwordsBudget = 20 * time.Second
	// RedisUser is the ACL user of Redis nodes that the chart deploys.
	RedisUser = "podlease"
)

// redisRules are the least that a sidecar works with, on Redis 7.0 and later.
const redisRules = "-@all +evalsha +eval +script|load +get +set +pexpire +pttl +del +publish +subscribe +ping +hello +time +info +client|id +client|setname"

// DeployedQuorum is a set of Redis nodes that the chart deploys.
type DeployedQuorum struct {
	// Secret gets user name and password, and ACL the file users.acl made of them.
	Secret, ACL types.NamespacedName
	KeyPrefix   string
}

// Passwords makes the password of deployed Redis nodes once, at run time: one made in a
// template would change with each rendering.
type Passwords struct {
	// Client reads and writes without a cache.
	Client  client.Client
	Quorums []DeployedQuorum
	Log     logr.Logger
}

// Start makes what is missing, now and every minute until ctx ends.
func (p *Passwords) Start(ctx context.Context) error {
	for {
		wait := passwordsEvery
		for _, q := range p.Quorums {
			if err := p.ensure(ctx, q); err != nil && ctx.Err() == nil {
				p.Log.Error(err, "redis password not ready", "secret", q.Secret)
				wait = passwordsRetry
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

func (p *Passwords) ensure(ctx context.Context, q DeployedQuorum) error {
	ctx, cancel := context.WithTimeout(ctx, passwordsBudget)
	defer cancel()
	secret, err := p.getOrCreate(ctx, q.Secret, func() map[string][]byte {
		return map[string][]byte{"username": []byte(RedisUser), "password": []byte(rand.Text())}
	})
	if err != nil {
		return err
	}
	_, err = p.getOrCreate(ctx, q.ACL, func() map[string][]byte {
		return map[string][]byte{"users.acl": []byte(acl(secret.Data["password"], q.KeyPrefix))}
	})
	return err
}

func (p *Passwords) getOrCreate(ctx context.Context, key types.NamespacedName, data func() map[string][]byte) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := p.Client.Get(ctx, key, secret)
	if err == nil {
		return secret, nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read Secret %s: %w", key, err)
	}
	secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: ownLabels()}, Data: data()}
	if err := p.Client.Create(ctx, secret); err != nil {
		return nil, fmt.Errorf("make Secret %s: %w", key, err)
	}
	p.Log.Info("redis credentials made", "secret", key)
	return secret, nil
}

// acl is the file that the Redis nodes read: the password only as its hash, and nobody
// else may do anything.
func acl(password []byte, prefix string) string {
	if prefix == "" {
		prefix = "podlease:"
	}
	hash := sha256.Sum256(password)
	return fmt.Sprintf("user default off\nuser %s on #%s ~%s* &%s* %s\n", RedisUser, hex.EncodeToString(hash[:]), prefix, prefix, redisRules)
}
