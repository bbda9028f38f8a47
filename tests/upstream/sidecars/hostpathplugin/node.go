package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func (d *driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	answer := &csi.NodeGetCapabilitiesResponse{}
	for _, kind := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
	} {
		rpc := &csi.NodeServiceCapability_RPC{Type: kind}
		answer.Capabilities = append(answer.Capabilities, &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{Rpc: rpc}})
	}
	return answer, nil
}

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	here := &csi.Topology{Segments: map[string]string{topology: d.node}}
	return &csi.NodeGetInfoResponse{NodeId: d.node, AccessibleTopology: here}, nil
}

func (d *driver) NodeStageVolume(_ context.Context, req *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	if _, err := d.there(req.GetVolumeId()); err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, mountable(req.GetVolumeCapability())
}

func (d *driver) NodeUnstageVolume(context.Context, *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	return &csi.NodeUnstageVolumeResponse{}, nil
}

func (d *driver) NodePublishVolume(_ context.Context, req *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if err := mountable(req.GetVolumeCapability()); err != nil {
		return nil, err
	}
	d.kept.Lock()
	defer d.kept.Unlock()
	id := req.GetVolumeId()
	if req.GetVolumeContext()["csi.storage.k8s.io/ephemeral"] == "true" {
		if found, err := d.kept.find(id); err != nil {
			return nil, err
		} else if found == nil {
			if err := d.kept.make(item{ID: id, Name: id, Source: "inline", Size: least, Made: time.Now()}, ""); err != nil {
				return nil, err
			}
		}
	} else if _, err := d.there(id); err != nil {
		return nil, err
	}
	target := req.GetTargetPath()
	if err := os.MkdirAll(target, 0o750); err != nil {
		return nil, err
	}
	if mounted(target) {
		return &csi.NodePublishVolumeResponse{}, nil
	}
	if err := syscall.Mount(d.kept.data(id), target, "", syscall.MS_BIND, ""); err != nil {
		return nil, err
	}
	if req.GetReadonly() {
		again := uintptr(syscall.MS_BIND | syscall.MS_REMOUNT | syscall.MS_RDONLY)
		if err := syscall.Mount("", target, "", again, ""); err != nil {
			return nil, err
		}
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func (d *driver) NodeUnpublishVolume(_ context.Context, req *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	d.kept.Lock()
	defer d.kept.Unlock()
	target := req.GetTargetPath()
	if mounted(target) {
		if err := syscall.Unmount(target, 0); err != nil {
			return nil, err
		}
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	found, err := d.kept.find(req.GetVolumeId())
	if err == nil && found != nil && found.Source == "inline" {
		err = d.kept.forget(found.ID)
	}
	return &csi.NodeUnpublishVolumeResponse{}, err
}

func (d *driver) NodeExpandVolume(_ context.Context, req *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	volume, err := d.there(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: volume.Size}, nil
}

func (d *driver) NodeGetVolumeStats(_ context.Context, req *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	volume, err := d.there(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	var stat syscall.Statfs_t
	if err := syscall.Statfs(req.GetVolumePath(), &stat); err != nil {
		return nil, status.Errorf(codes.NotFound, "%s: %v", req.GetVolumePath(), err)
	}
	bytes := &csi.VolumeUsage{Unit: csi.VolumeUsage_BYTES, Total: volume.Size, Available: volume.Size}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{bytes}}, nil
}

// mounted tells a folder that is a mount of its own by the table of mounts: a folder bound from the same file system has its device.
func mounted(path string) bool {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false
	}
	for _, line := range strings.Split(string(table), "\n") {
		if words := strings.Fields(line); len(words) > 4 && words[4] == path {
			return true
		}
	}
	return false
}
