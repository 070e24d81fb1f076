# bash completion for vudactl

_vudactl_tsgs() {
    # Names of registered TSGs; nothing when the daemon is away.
    vudactl status --json 2>/dev/null | sed -n '/"tsgs"/,/"sessions"/s/^      "name": "\(.*\)",$/\1/p'
}

_vudactl() {
    local cur prev words cword
    _init_completion -n : || return

    local commands="run status top watch metrics doctor driver detach unquarantine quota mode slo bugreport"
    local command="" i
    for ((i = 1; i < cword; ++i)); do
        case ${words[i]} in
            --socket) ((++i)) ;;
            -*) ;;
            *) command=${words[i]}; break ;;
        esac
    done

    if [[ -z $command ]]; then
        case $prev in
            --socket) _filedir ;;
            *) COMPREPLY=($(compgen -W "$commands --socket --version --help" -- "$cur")) ;;
        esac
        return
    fi

    case $command in
        run)
            local j
            for ((j = i + 1; j < cword; ++j)); do
                if [[ ${words[j]} == -- ]]; then
                    _command_offset $((j + 1))
                    return
                fi
            done
            case $prev in
                --attach) COMPREPLY=($(compgen -W "$(_vudactl_tsgs)" -- "$cur")) ;;
                --register) ;;
                --allow-user) COMPREPLY=($(compgen -u -- "$cur")) ;;
                --allow-group) COMPREPLY=($(compgen -g -- "$cur")) ;;
                --over-limit) COMPREPLY=($(compgen -W "native unshare reject" -- "$cur")) ;;
                --reserve) COMPREPLY=($(compgen -W "all 1 2 4 8" -- "$cur")) ;;
                *) COMPREPLY=($(compgen -W "--register --allow-user --allow-group --attach --share --reserve --fit-kernels --over-limit --require --no-layer --help --" -- "$cur")) ;;
            esac
            ;;
        status | watch) COMPREPLY=($(compgen -W "--json --help" -- "$cur")) ;;
        doctor)
            case $prev in
                --root) _filedir -d ;;
                *) COMPREPLY=($(compgen -W "--json --root --help" -- "$cur")) ;;
            esac
            ;;
        top) COMPREPLY=($(compgen -W "--once --interval --help" -- "$cur")) ;;
        bugreport)
            case $prev in
                --output) _filedir ;;
                *) COMPREPLY=($(compgen -W "--output --list --help" -- "$cur")) ;;
            esac
            ;;
        driver) COMPREPLY=($(compgen -W "list --json --help" -- "$cur")) ;;
        unquarantine) COMPREPLY=($(compgen -W "$(_vudactl_tsgs) --all --help" -- "$cur")) ;;
        quota)
            case $((cword - i)) in
                1) COMPREPLY=($(compgen -W "$(_vudactl_tsgs)" -- "$cur")) ;;
                2) COMPREPLY=($(compgen -W "auto none" -- "$cur")) ;;
            esac
            ;;
        mode)
            case $((cword - i)) in
                1) COMPREPLY=($(compgen -W "$(_vudactl_tsgs)" -- "$cur")) ;;
                2) COMPREPLY=($(compgen -W "intra-sm inter-sm sliced" -- "$cur")) ;;
            esac
            ;;
        slo)
            if ((cword - i == 1)); then
                COMPREPLY=($(compgen -W "$(_vudactl_tsgs)" -- "$cur"))
            else
                COMPREPLY=($(compgen -W "--session --frame-ms --frame-miss --latency-ms --latency-miss --throughput --weight --clear --json --help" -- "$cur"))
            fi
            ;;
        *) COMPREPLY=($(compgen -W "--help" -- "$cur")) ;;
    esac
} && complete -F _vudactl vudactl
