# fish completion for vudactl

function __vudactl_tsgs
    # Names of registered TSGs; nothing when the daemon is away.
    vudactl status --json 2>/dev/null | sed -n '/"tsgs"/,/"sessions"/s/^      "name": "\(.*\)",$/\1/p'
end

function __vudactl_at
    # True when COMMAND was given and N words stand between it and the cursor.
    set -l words (commandline -opc)
    set -l at (contains -i -- $argv[1] $words); or return 1
    test (math (count $words) - $at) -eq $argv[2]
end

set -l commands run status top watch metrics doctor driver detach unquarantine quota mode slo bugreport

complete -c vudactl -f
complete -c vudactl -l help -d 'Print help'
complete -c vudactl -n "not __fish_seen_subcommand_from $commands" -l version -d 'Print the version'
complete -c vudactl -n "not __fish_seen_subcommand_from $commands" -l socket -r -F -d 'Control socket of vudad'
complete -c vudactl -n "not __fish_seen_subcommand_from $commands" -a run -d 'Run a program so that it shares the GPU'
complete -c vudactl -n "not __fish_seen_subcommand_from $commands" -a status -d 'Show the daemon, the TSGs and the programs'
complete -c vudactl -n "not __fish_seen_subcommand_from $commands" -a top -d 'Live table with rates and latencies'
complete -c vudactl -n "not __fish_seen_subcommand_from $commands" -a watch -d 'Print events as they happen'
complete -c vudactl -n "not __fish_seen_subcommand_from $commands" -a metrics -d 'Print metrics for Prometheus'
complete -c vudactl -n "not __fish_seen_subcommand_from $commands" -a doctor -d 'What keeps this machine from sharing'
complete -c vudactl -n "not __fish_seen_subcommand_from $commands" -a driver -d 'About NVIDIA driver releases'
complete -c vudactl -n "not __fish_seen_subcommand_from $commands" -a detach -d 'End sharing for one session'
complete -c vudactl -n "not __fish_seen_subcommand_from $commands" -a unquarantine -d 'Let programs come back that are held off'
complete -c vudactl -n "not __fish_seen_subcommand_from $commands" -a quota -d 'Limit what compute may use'
complete -c vudactl -n "not __fish_seen_subcommand_from $commands" -a mode -d 'How graphics and compute divide a TSG'
complete -c vudactl -n "not __fish_seen_subcommand_from $commands" -a slo -d 'Set targets for the tuner'
complete -c vudactl -n "not __fish_seen_subcommand_from $commands" -a bugreport -d 'Collect what a report needs'

complete -c vudactl -n '__fish_seen_subcommand_from run' -l register -x -d 'Let others find the TSG of this renderer'
complete -c vudactl -n '__fish_seen_subcommand_from run' -l allow-user -x -a '(__fish_complete_users)' -d 'This user may attach too'
complete -c vudactl -n '__fish_seen_subcommand_from run' -l allow-group -x -a '(__fish_complete_groups)' -d 'Members of this group may attach too'
complete -c vudactl -n '__fish_seen_subcommand_from run' -l attach -x -a '(__vudactl_tsgs)' -d 'Run CUDA in this TSG'
complete -c vudactl -n '__fish_seen_subcommand_from run' -l share -d 'CUDA and Vulkan in one process'
complete -c vudactl -n '__fish_seen_subcommand_from run' -l reserve -x -a 'all 1 2 4 8' -d 'Channels that CUDA shares with'
complete -c vudactl -n '__fish_seen_subcommand_from run' -l fit-kernels -d 'Have libraries choose kernels that can share'
complete -c vudactl -n '__fish_seen_subcommand_from run' -l over-limit -x -a 'native unshare reject' -d 'What becomes of kernels too large to share'
complete -c vudactl -n '__fish_seen_subcommand_from run' -l require -d 'Failure to share is an error'
complete -c vudactl -n '__fish_seen_subcommand_from run' -l no-layer -d 'Do not enable the Vulkan layer'
complete -c vudactl -n '__fish_seen_subcommand_from run' -a '(__fish_complete_subcommand --fcs-skip=2)'

complete -c vudactl -n '__fish_seen_subcommand_from status watch doctor driver slo' -l json -d 'As JSON'
complete -c vudactl -n '__fish_seen_subcommand_from doctor' -l root -r -a '(__fish_complete_directories)' -d 'Look at the system under a folder'
complete -c vudactl -n '__vudactl_at driver 0' -a list -d 'Which releases are known'
complete -c vudactl -n '__fish_seen_subcommand_from top' -l once -d 'Print once, as plain text'
complete -c vudactl -n '__fish_seen_subcommand_from top' -l interval -x -d 'Seconds between two looks'
complete -c vudactl -n '__fish_seen_subcommand_from bugreport' -l output -r -F -d 'File to make'
complete -c vudactl -n '__fish_seen_subcommand_from bugreport' -l list -d 'Say what would be taken'

complete -c vudactl -n '__fish_seen_subcommand_from unquarantine' -l all -d 'Those of every name that you may steer'
complete -c vudactl -n '__vudactl_at unquarantine 0' -a '(__vudactl_tsgs)'
complete -c vudactl -n '__vudactl_at quota 0; or __vudactl_at mode 0; or __vudactl_at slo 0' -a '(__vudactl_tsgs)'
complete -c vudactl -n '__vudactl_at quota 1' -a 'auto none'
complete -c vudactl -n '__vudactl_at mode 1' -a 'intra-sm inter-sm sliced'
complete -c vudactl -n '__fish_seen_subcommand_from slo' -l session -x -d 'Compute session'
complete -c vudactl -n '__fish_seen_subcommand_from slo' -l frame-ms -x -d 'Frame time, milliseconds'
complete -c vudactl -n '__fish_seen_subcommand_from slo' -l frame-miss -x -d 'Fraction of late frames'
complete -c vudactl -n '__fish_seen_subcommand_from slo' -l latency-ms -x -d 'Latency of one step, milliseconds'
complete -c vudactl -n '__fish_seen_subcommand_from slo' -l latency-miss -x -d 'Fraction of late steps'
complete -c vudactl -n '__fish_seen_subcommand_from slo' -l throughput -x -d 'Steps a second'
complete -c vudactl -n '__fish_seen_subcommand_from slo' -l weight -x -d 'Share against other sessions'
complete -c vudactl -n '__fish_seen_subcommand_from slo' -l clear -d 'Drop the targets'
