# Completion of Palisade Router's commands for bash. Written by deploy/completion/generate.py: do not edit.
# Use: source it in ~/.bashrc, or copy it to /etc/bash_completion.d/.

_palisade_options() {
    case "$1" in
        "qdrouterd") echo "-c --config -I --include -d --daemon -P --pidfile -U --user -T --test-hooks -v --version -h --help --check" ;;
        "qdauthd") echo "-c --config -I --include -d --daemon -P --pidfile -U --user -T --test-hooks -v --version -h --help --check" ;;
        "qdrouterd-entry") echo "-h --help --version -c --config --users --run-dir" ;;
        "qdstat") echo "-h --help --version -v --verbose -g --general -c --connections -l --links -n --nodes -e --edge -a --address -m --memory -p --policy --autolinks --linkroutes --vhosts --vhostgroups --vhoststats --bans --budgets --log --all-entities --check --all-routers -r --router -d --edge-router --limit --csv --dot --watch -b --bus -t --timeout --ssl-certificate --ssl-key --ssl-trustfile --ssl-password --ssl-password-file --ssl-disable-peer-name-verify --sasl-mechanisms --sasl-username --sasl-password --sasl-password-file --sasl-token-file" ;;
        "qdmanage") echo "-h --help --version -v --verbose -r --router -d --edge-router --type --name --identity --stdin --body --properties --indent -b --bus -t --timeout --ssl-certificate --ssl-key --ssl-trustfile --ssl-password --ssl-password-file --ssl-disable-peer-name-verify --sasl-mechanisms --sasl-username --sasl-password --sasl-password-file --sasl-token-file" ;;
        "qdsend") echo "-h --help --version -a --address -c --count -b --bus -t --timeout --ssl-certificate --ssl-key --ssl-trustfile --ssl-password --ssl-password-file --ssl-disable-peer-name-verify --sasl-mechanisms --sasl-username --sasl-password --sasl-password-file --sasl-token-file --body --stdin --subject --durable" ;;
        "qdreceive") echo "-h --help --version -a --address -c --count -b --bus -t --timeout --ssl-certificate --ssl-key --ssl-trustfile --ssl-password --ssl-password-file --ssl-disable-peer-name-verify --sasl-mechanisms --sasl-username --sasl-password --sasl-password-file --sasl-token-file --wait -v --verbose" ;;
        "qdcerts") echo "-h --help --version -f --folder --ca-password-file" ;;
        "qdcerts ca") echo "-h --help --name --days --renew --drop-old" ;;
        "qdcerts router") echo "-h --help --host --days" ;;
        "qdcerts client") echo "-h --help --days" ;;
        "qdcerts renew") echo "-h --help --days" ;;
        "qdcerts list") echo "-h --help --days" ;;
        "qdpasswd") echo "-h --help --version -f --file -c --create --scrypt --scram --stdin --delete" ;;
        "qdpolicy") echo "-h --help --version" ;;
        "qdpolicy lint") echo "-h --help --format --explain --output --fail-level --ignore --select --config --baseline --write-baseline --fleet --at --fix --diff --unsafe" ;;
        "qdpolicy rules") echo "-h --help" ;;
        "qdpolicy rule") echo "-h --help" ;;
        "qdpolicy explain") echo "-h --help --user --host --vhost --mechanism --group --tls --router-id --multi-tenant --send --receive --receive-dynamic --manage --reply-age --own --capability --connections --connections-of-user --connections-of-host --links --at --resolve --json" ;;
        "qdpolicy diff") echo "-h --help --fail-on --at --router-id --resolve --json" ;;
        "qdpolicy test") echo "-h --help --junit --min-coverage --router-id --resolve" ;;
        "qdpolicy fmt") echo "-h --help --check --diff" ;;
        "qdpolicy convert") echo "-h --help --to --form --narrow --output" ;;
        "qdpolicy schema") echo "-h --help" ;;
        "qdpolicy lsp") echo "-h --help --stdio" ;;
        "qdaudit") echo "-h --help --version" ;;
        "qdaudit denials") echo "-h --help --out --format --since --until --top --master --driver-memory --strict" ;;
        "qdaudit shadow") echo "-h --help --out --format --since --until --top --master --driver-memory --strict --candidate" ;;
        "qdaudit changes") echo "-h --help --out --format --since --until --top --master --driver-memory --strict" ;;
        "qdaudit verify") echo "-h --help --key --unsigned --running --seen --jobs --format" ;;
        "qdaudit ingest") echo "-h --help --every --qdrouterd --strict --master --driver-memory" ;;
        "qdaudit generate") echo "-h --help --events --seed --days --routers --incidents" ;;
        "qdaudit detect") echo "-h --help --since --until --master --driver-memory --thresholds --out --format --fail-on --follow --once --checkpoint --interval --webhook --webhook-token-file --webhook-in-the-clear" ;;
        "qdaudit replay") echo "-h --help --since --until --master --driver-memory --resolve --digest --fail-on --strict --out --format" ;;
        "qdaudit recommend") echo "-h --help --since --until --master --driver-memory --resolve --out --fail-on-unused" ;;
        "qdaudit report") echo "-h --help --since --until --master --driver-memory --out --format --findings --title" ;;
        "qdaudit comply") echo "-h --help --since --until --master --driver-memory --standard --out --trail --key --fail-on-gap" ;;
    esac
}

# What an option's value may be: words, FILES, or NOTHING that is known. No output: it takes none.
_palisade_values() {
    case "$1 $2" in
        "qdrouterd -c"|"qdrouterd --config") echo "FILES" ;;
        "qdrouterd -I"|"qdrouterd --include") echo "FILES" ;;
        "qdrouterd -P"|"qdrouterd --pidfile") echo "FILES" ;;
        "qdrouterd -U"|"qdrouterd --user") echo "NOTHING" ;;
        "qdauthd -c"|"qdauthd --config") echo "FILES" ;;
        "qdauthd -I"|"qdauthd --include") echo "FILES" ;;
        "qdauthd -P"|"qdauthd --pidfile") echo "FILES" ;;
        "qdauthd -U"|"qdauthd --user") echo "NOTHING" ;;
        "qdrouterd-entry -c"|"qdrouterd-entry --config") echo "FILES" ;;
        "qdrouterd-entry --users") echo "FILES" ;;
        "qdrouterd-entry --run-dir") echo "FILES" ;;
        "qdstat --check") echo "NOTHING" ;;
        "qdstat -r"|"qdstat --router") echo "NOTHING" ;;
        "qdstat -d"|"qdstat --edge-router") echo "NOTHING" ;;
        "qdstat --limit") echo "NOTHING" ;;
        "qdstat --watch") echo "NOTHING" ;;
        "qdstat -b"|"qdstat --bus") echo "NOTHING" ;;
        "qdstat -t"|"qdstat --timeout") echo "NOTHING" ;;
        "qdstat --ssl-certificate") echo "FILES" ;;
        "qdstat --ssl-key") echo "FILES" ;;
        "qdstat --ssl-trustfile") echo "FILES" ;;
        "qdstat --ssl-password") echo "NOTHING" ;;
        "qdstat --ssl-password-file") echo "FILES" ;;
        "qdstat --sasl-mechanisms") echo "PLAIN EXTERNAL ANONYMOUS" ;;
        "qdstat --sasl-username") echo "NOTHING" ;;
        "qdstat --sasl-password") echo "NOTHING" ;;
        "qdstat --sasl-password-file") echo "FILES" ;;
        "qdstat --sasl-token-file") echo "NOTHING" ;;
        "qdmanage -r"|"qdmanage --router") echo "NOTHING" ;;
        "qdmanage -d"|"qdmanage --edge-router") echo "NOTHING" ;;
        "qdmanage --type") echo "address allocator authServicePlugin authenticatorStats autoLink ban binding budget connection connector console dummy exchange fileAuthenticator kerberosAuthenticator ldapAuthenticator linkRoute listener log logStats management policy router router.address router.connection.linkRoute router.link router.node saslauthdAuthenticator sasldbAuthenticator shadowDisagreement shadowPolicy sslProfile tokenAuthenticator vhost vhostStats vhostUserGroupSettings" ;;
        "qdmanage --name") echo "NOTHING" ;;
        "qdmanage --identity") echo "NOTHING" ;;
        "qdmanage --body") echo "NOTHING" ;;
        "qdmanage --properties") echo "NOTHING" ;;
        "qdmanage --indent") echo "NOTHING" ;;
        "qdmanage -b"|"qdmanage --bus") echo "NOTHING" ;;
        "qdmanage -t"|"qdmanage --timeout") echo "NOTHING" ;;
        "qdmanage --ssl-certificate") echo "FILES" ;;
        "qdmanage --ssl-key") echo "FILES" ;;
        "qdmanage --ssl-trustfile") echo "FILES" ;;
        "qdmanage --ssl-password") echo "NOTHING" ;;
        "qdmanage --ssl-password-file") echo "FILES" ;;
        "qdmanage --sasl-mechanisms") echo "PLAIN EXTERNAL ANONYMOUS" ;;
        "qdmanage --sasl-username") echo "NOTHING" ;;
        "qdmanage --sasl-password") echo "NOTHING" ;;
        "qdmanage --sasl-password-file") echo "FILES" ;;
        "qdmanage --sasl-token-file") echo "NOTHING" ;;
        "qdsend -a"|"qdsend --address") echo "NOTHING" ;;
        "qdsend -c"|"qdsend --count") echo "NOTHING" ;;
        "qdsend -b"|"qdsend --bus") echo "NOTHING" ;;
        "qdsend -t"|"qdsend --timeout") echo "NOTHING" ;;
        "qdsend --ssl-certificate") echo "FILES" ;;
        "qdsend --ssl-key") echo "FILES" ;;
        "qdsend --ssl-trustfile") echo "FILES" ;;
        "qdsend --ssl-password") echo "NOTHING" ;;
        "qdsend --ssl-password-file") echo "FILES" ;;
        "qdsend --sasl-mechanisms") echo "PLAIN EXTERNAL ANONYMOUS" ;;
        "qdsend --sasl-username") echo "NOTHING" ;;
        "qdsend --sasl-password") echo "NOTHING" ;;
        "qdsend --sasl-password-file") echo "FILES" ;;
        "qdsend --sasl-token-file") echo "NOTHING" ;;
        "qdsend --body") echo "NOTHING" ;;
        "qdsend --subject") echo "NOTHING" ;;
        "qdreceive -a"|"qdreceive --address") echo "NOTHING" ;;
        "qdreceive -c"|"qdreceive --count") echo "NOTHING" ;;
        "qdreceive -b"|"qdreceive --bus") echo "NOTHING" ;;
        "qdreceive -t"|"qdreceive --timeout") echo "NOTHING" ;;
        "qdreceive --ssl-certificate") echo "FILES" ;;
        "qdreceive --ssl-key") echo "FILES" ;;
        "qdreceive --ssl-trustfile") echo "FILES" ;;
        "qdreceive --ssl-password") echo "NOTHING" ;;
        "qdreceive --ssl-password-file") echo "FILES" ;;
        "qdreceive --sasl-mechanisms") echo "PLAIN EXTERNAL ANONYMOUS" ;;
        "qdreceive --sasl-username") echo "NOTHING" ;;
        "qdreceive --sasl-password") echo "NOTHING" ;;
        "qdreceive --sasl-password-file") echo "FILES" ;;
        "qdreceive --sasl-token-file") echo "NOTHING" ;;
        "qdreceive --wait") echo "NOTHING" ;;
        "qdcerts -f"|"qdcerts --folder") echo "FILES" ;;
        "qdcerts --ca-password-file") echo "FILES" ;;
        "qdcerts ca --name") echo "NOTHING" ;;
        "qdcerts ca --days") echo "NOTHING" ;;
        "qdcerts router --host") echo "NOTHING" ;;
        "qdcerts router --days") echo "NOTHING" ;;
        "qdcerts client --days") echo "NOTHING" ;;
        "qdcerts renew --days") echo "NOTHING" ;;
        "qdcerts list --days") echo "NOTHING" ;;
        "qdpasswd -f"|"qdpasswd --file") echo "FILES" ;;
        "qdpasswd --scram") echo "SHA-512 SHA-256 SHA-1" ;;
        "qdpolicy lint --format") echo "text concise json sarif github junit" ;;
        "qdpolicy lint --output") echo "FILES" ;;
        "qdpolicy lint --fail-level") echo "note warning error" ;;
        "qdpolicy lint --ignore") echo "NOTHING" ;;
        "qdpolicy lint --select") echo "NOTHING" ;;
        "qdpolicy lint --config") echo "FILES" ;;
        "qdpolicy lint --baseline") echo "FILES" ;;
        "qdpolicy lint --write-baseline") echo "FILES" ;;
        "qdpolicy lint --at") echo "NOTHING" ;;
        "qdpolicy explain --user") echo "NOTHING" ;;
        "qdpolicy explain --host") echo "NOTHING" ;;
        "qdpolicy explain --vhost") echo "NOTHING" ;;
        "qdpolicy explain --mechanism") echo "PLAIN EXTERNAL ANONYMOUS" ;;
        "qdpolicy explain --group") echo "NOTHING" ;;
        "qdpolicy explain --router-id") echo "NOTHING" ;;
        "qdpolicy explain --send") echo "NOTHING" ;;
        "qdpolicy explain --receive") echo "NOTHING" ;;
        "qdpolicy explain --manage") echo "NOTHING" ;;
        "qdpolicy explain --reply-age") echo "NOTHING" ;;
        "qdpolicy explain --capability") echo "NOTHING" ;;
        "qdpolicy explain --connections") echo "NOTHING" ;;
        "qdpolicy explain --connections-of-user") echo "NOTHING" ;;
        "qdpolicy explain --connections-of-host") echo "NOTHING" ;;
        "qdpolicy explain --links") echo "NOTHING" ;;
        "qdpolicy explain --at") echo "NOTHING" ;;
        "qdpolicy diff --fail-on") echo "widening narrowing any" ;;
        "qdpolicy diff --at") echo "NOTHING" ;;
        "qdpolicy diff --router-id") echo "NOTHING" ;;
        "qdpolicy test --junit") echo "FILES" ;;
        "qdpolicy test --min-coverage") echo "NOTHING" ;;
        "qdpolicy test --router-id") echo "NOTHING" ;;
        "qdpolicy convert --to") echo "json conf" ;;
        "qdpolicy convert --form") echo "as-is compatible extended" ;;
        "qdpolicy convert --output") echo "FILES" ;;
        "qdaudit denials --out") echo "NOTHING" ;;
        "qdaudit denials --format") echo "table json" ;;
        "qdaudit denials --since") echo "NOTHING" ;;
        "qdaudit denials --until") echo "NOTHING" ;;
        "qdaudit denials --top") echo "NOTHING" ;;
        "qdaudit denials --master") echo "NOTHING" ;;
        "qdaudit denials --driver-memory") echo "NOTHING" ;;
        "qdaudit shadow --out") echo "NOTHING" ;;
        "qdaudit shadow --format") echo "table json" ;;
        "qdaudit shadow --since") echo "NOTHING" ;;
        "qdaudit shadow --until") echo "NOTHING" ;;
        "qdaudit shadow --top") echo "NOTHING" ;;
        "qdaudit shadow --master") echo "NOTHING" ;;
        "qdaudit shadow --driver-memory") echo "NOTHING" ;;
        "qdaudit shadow --candidate") echo "NOTHING" ;;
        "qdaudit changes --out") echo "NOTHING" ;;
        "qdaudit changes --format") echo "table json" ;;
        "qdaudit changes --since") echo "NOTHING" ;;
        "qdaudit changes --until") echo "NOTHING" ;;
        "qdaudit changes --top") echo "NOTHING" ;;
        "qdaudit changes --master") echo "NOTHING" ;;
        "qdaudit changes --driver-memory") echo "NOTHING" ;;
        "qdaudit verify --key") echo "NOTHING" ;;
        "qdaudit verify --seen") echo "NOTHING" ;;
        "qdaudit verify --jobs") echo "NOTHING" ;;
        "qdaudit verify --format") echo "text json" ;;
        "qdaudit ingest --every") echo "NOTHING" ;;
        "qdaudit ingest --qdrouterd") echo "NOTHING" ;;
        "qdaudit ingest --master") echo "NOTHING" ;;
        "qdaudit ingest --driver-memory") echo "NOTHING" ;;
        "qdaudit generate --events") echo "NOTHING" ;;
        "qdaudit generate --seed") echo "NOTHING" ;;
        "qdaudit generate --days") echo "NOTHING" ;;
        "qdaudit generate --routers") echo "NOTHING" ;;
        "qdaudit generate --incidents") echo "NOTHING" ;;
        "qdaudit detect --since") echo "NOTHING" ;;
        "qdaudit detect --until") echo "NOTHING" ;;
        "qdaudit detect --master") echo "NOTHING" ;;
        "qdaudit detect --driver-memory") echo "NOTHING" ;;
        "qdaudit detect --thresholds") echo "FILES" ;;
        "qdaudit detect --out") echo "NOTHING" ;;
        "qdaudit detect --format") echo "table json" ;;
        "qdaudit detect --fail-on") echo "low medium high critical" ;;
        "qdaudit detect --checkpoint") echo "NOTHING" ;;
        "qdaudit detect --interval") echo "NOTHING" ;;
        "qdaudit detect --webhook") echo "NOTHING" ;;
        "qdaudit detect --webhook-token-file") echo "FILES" ;;
        "qdaudit replay --since") echo "NOTHING" ;;
        "qdaudit replay --until") echo "NOTHING" ;;
        "qdaudit replay --master") echo "NOTHING" ;;
        "qdaudit replay --driver-memory") echo "NOTHING" ;;
        "qdaudit replay --digest") echo "NOTHING" ;;
        "qdaudit replay --fail-on") echo "newly-allowed newly-denied any" ;;
        "qdaudit replay --out") echo "NOTHING" ;;
        "qdaudit replay --format") echo "table json" ;;
        "qdaudit recommend --since") echo "NOTHING" ;;
        "qdaudit recommend --until") echo "NOTHING" ;;
        "qdaudit recommend --master") echo "NOTHING" ;;
        "qdaudit recommend --driver-memory") echo "NOTHING" ;;
        "qdaudit recommend --out") echo "NOTHING" ;;
        "qdaudit report --since") echo "NOTHING" ;;
        "qdaudit report --until") echo "NOTHING" ;;
        "qdaudit report --master") echo "NOTHING" ;;
        "qdaudit report --driver-memory") echo "NOTHING" ;;
        "qdaudit report --out") echo "NOTHING" ;;
        "qdaudit report --format") echo "html csv json parquet ocsf" ;;
        "qdaudit report --findings") echo "FILES" ;;
        "qdaudit report --title") echo "NOTHING" ;;
        "qdaudit comply --since") echo "NOTHING" ;;
        "qdaudit comply --until") echo "NOTHING" ;;
        "qdaudit comply --master") echo "NOTHING" ;;
        "qdaudit comply --driver-memory") echo "NOTHING" ;;
        "qdaudit comply --standard") echo "pci-dss-4.0 nist-800-53 soc-2 iso-27001" ;;
        "qdaudit comply --out") echo "NOTHING" ;;
        "qdaudit comply --trail") echo "FILES" ;;
        "qdaudit comply --key") echo "NOTHING" ;;
    esac
}

_palisade_rest() {
    case "$1" in
        "qdrouterd") echo "FILES" ;;
        "qdauthd") echo "FILES" ;;
        "qdmanage") echo "query create read update delete get-types get-attributes get-operations get-annotations get-mgmt-nodes get-schema get-json-schema get-log export" ;;
        "qdcerts") echo "ca router client renew list" ;;
        "qdpolicy") echo "lint rules rule explain diff test fmt convert schema lsp" ;;
        "qdpolicy lint") echo "FILES" ;;
        "qdpolicy explain") echo "FILES" ;;
        "qdpolicy diff") echo "FILES" ;;
        "qdpolicy test") echo "FILES" ;;
        "qdpolicy fmt") echo "FILES" ;;
        "qdpolicy convert") echo "FILES" ;;
        "qdaudit") echo "denials shadow changes verify ingest generate detect replay recommend report comply" ;;
        "qdaudit denials") echo "FILES" ;;
        "qdaudit shadow") echo "FILES" ;;
        "qdaudit changes") echo "FILES" ;;
        "qdaudit verify") echo "FILES" ;;
        "qdaudit ingest") echo "FILES" ;;
    esac
}

_palisade() {
    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" key="${COMP_WORDS[0]##*/}"
    local found word before
    # bash breaks --option=value in three.
    if [[ $cur == "=" ]]; then
        cur=""
    elif [[ $prev == "=" ]]; then
        prev="${COMP_WORDS[COMP_CWORD-2]}"
    fi
    case "$key" in
        qdcerts|qdpolicy|qdaudit)
            before=""
            for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
                # The value of an option before the verb is no verb.
                if [[ $word != -* && -z "$(_palisade_values "$key" "$before")" ]]; then
                    key="$key $word"
                    break
                fi
                before="$word"
            done
            ;;
    esac
    COMPREPLY=()
    found="$(_palisade_values "$key" "$prev")"
    if [[ -z $found ]]; then
        if [[ $cur == -* ]]; then
            found="$(_palisade_options "$key")"
        else
            found="$(_palisade_rest "$key")"
        fi
    fi
    case "$found" in
        NOTHING) ;;
        FILES)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            ;;
        *) mapfile -t COMPREPLY < <(compgen -W "$found" -- "$cur") ;;
    esac
}

complete -F _palisade qdrouterd qdauthd qdrouterd-entry qdstat qdmanage qdsend qdreceive qdcerts qdpasswd qdpolicy qdaudit
