//go:build tools

// Package mesh names what `build` builds, so that go.mod and go.sum hold its versions.
package mesh

import (
	_ "istio.io/istio/istioctl/cmd/istioctl"
	_ "istio.io/istio/pilot/cmd/pilot-agent"
	_ "istio.io/istio/pilot/cmd/pilot-discovery"
)
