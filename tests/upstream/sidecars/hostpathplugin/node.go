package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
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
	volume, err := d.there(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	asked, err := blocks(req.GetVolumeCapability())
	if err == nil && asked {
		d.kept.Lock()
		defer d.kept.Unlock()
		err = attach(volume.ID, d.kept.data(volume.ID))
	}
	return &csi.NodeStageVolumeResponse{}, err
}

func (d *driver) NodeUnstageVolume(_ context.Context, req *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	d.kept.Lock()
	defer d.kept.Unlock()
	return &csi.NodeUnstageVolumeResponse{}, detach(req.GetVolumeId())
}

func (d *driver) NodePublishVolume(_ context.Context, req *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	asked, err := blocks(req.GetVolumeCapability())
	if err != nil {
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
	from, target := d.kept.data(id), req.GetTargetPath()
	if asked {
		device, err := attached(id)
		if err == nil && device == nil {
			err = status.Errorf(codes.FailedPrecondition, "%s is not staged", id)
		}
		if err != nil {
			return nil, err
		}
		from = device.Name()
		_ = device.Close()
	}
	if err := place(target, asked); err != nil {
		return nil, err
	}
	if mounted(target) {
		return &csi.NodePublishVolumeResponse{}, nil
	}
	if err := syscall.Mount(from, target, "", syscall.MS_BIND, ""); err != nil {
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

// place makes what is mounted on: a folder, or a file for a device.
func place(target string, device bool) error {
	if !device {
		return os.MkdirAll(target, 0o750)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	file, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o640)
	if err != nil {
		return err
	}
	return file.Close()
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
	if volume.Blocks {
		if err := grown(volume.ID); err != nil {
			return nil, err
		}
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: volume.Size}, nil
}

func (d *driver) NodeGetVolumeStats(_ context.Context, req *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	volume, err := d.there(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	bytes := &csi.VolumeUsage{Unit: csi.VolumeUsage_BYTES, Total: volume.Size, Available: volume.Size}
	answer := &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{bytes}}
	if volume.Blocks {
		return answer, nil
	}
	var stat syscall.Statfs_t
	if err := syscall.Statfs(req.GetVolumePath(), &stat); err != nil {
		return nil, status.Errorf(codes.NotFound, "%s: %v", req.GetVolumePath(), err)
	}
	return answer, nil
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
