package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// snapshotCmd fetches an archive of diagnostic files.
type snapshotCmd struct {
	Compression string   `name:"compression" short:"c" enum:"stored,deflated,bzip2,zstd,lzma,xz" default:"deflated" help:"How files are packed: stored, deflated, bzip2, zstd, lzma or xz (${default})."`
	Types       []string `name:"snapshot-types" short:"s" placeholder:"TYPE,..." enum:"filesystem_overview,process_list,resource_usage,test,server_logs,server_config,all" default:"all" help:"What to fetch: filesystem_overview, process_list, resource_usage, test, server_logs, server_config or all (${default})."`
	Dir         string   `name:"out-dir" short:"o" default:"." placeholder:"DIR" help:"Where to write the archive (${default})."`
}

// Run writes the archive.
func (c *snapshotCmd) Run(inv *invocation) error {
	compression := map[string]wire.SnapshotCompression{
		"stored": wire.SnapshotStored, "deflated": wire.SnapshotDeflated, "bzip2": wire.SnapshotBzip2,
		"zstd": wire.SnapshotZstd, "lzma": wire.SnapshotLzma, "xz": wire.SnapshotXz,
	}[c.Compression]
	byName := map[string]wire.SnapshotType{
		"filesystem_overview": wire.SnapshotFilesystemOverview, "process_list": wire.SnapshotProcessList,
		"resource_usage": wire.SnapshotResourceUsage, "test": wire.SnapshotTest, "server_logs": wire.SnapshotServerLogs,
		"server_config": wire.SnapshotServerConfig, "all": wire.SnapshotAll,
	}
	var types []wire.SnapshotType
	for _, t := range c.Types {
		types = append(types, byName[t])
	}
	inv.out.Executing("snapshot command, types: %s, compression: %s", strings.Join(c.Types, ", "), c.Compression)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	zip, err := conn.Snapshot(inv.ctx, compression, types...)
	if err != nil {
		return failed(err, "fetch a snapshot")
	}
	path := filepath.Join(c.Dir, "snapshot_"+time.Now().Format("20060102_150405")+".zip")
	if err := os.WriteFile(path, zip, 0o600); err != nil { // it may hold the server's configuration
		return fmt.Errorf("write the snapshot: %w", err)
	}
	inv.out.Details("Property", "Value", [][]string{{"Snapshot File Path", path}, {"Snapshot File Size (bytes)", strconv.Itoa(len(zip))}},
		map[string]any{"file": path, "size": len(zip)})
	return nil
}
