# SPDX-License-Identifier: MIT
#
# Completion of sharectl for fish. Commands, options and columns are asked of sharectl itself, so that
# this file has no list that could grow old; names, pools, tokens and clients are asked of the broker,
# if there is one.

# The first word that is neither an option nor the value of one.
function __sharectl_command
    set -l skip 0
    for word in (commandline -opc)[2..-1]
        if test $skip = 1
            set skip 0
            continue
        end
        switch $word
            case -s --socket --sort --older-than --count --name --pool --timeout --user
                set skip 1
            case '-*'
            case '*'
                echo $word
                return
        end
    end
    return 1
end

function __sharectl_is
    contains -- (__sharectl_command; or echo none) $argv
end

function __sharectl_columns
    sharectl (__sharectl_command; or echo buffers) --sort= 2>&1 >/dev/null |
        string replace -rf '.*, but by: ' '' | string split ', '
end

# __sharectl_values REPORT KEY: that member of each row.
function __sharectl_values
    sharectl --json $argv[1] 2>/dev/null | string replace -rf '^\{"'$argv[2]'":"?([^",]+)"?,.*' '$1'
end

complete -c sharectl -f
complete -c sharectl -n 'not __sharectl_command >/dev/null' -a \
    "(sharectl --help | string replace -rf '^  ([a-z][a-z-]*)  +(.*)' '\$1\t\$2')"
complete -c sharectl -n '__sharectl_is names recipe unpublish' -a '(__sharectl_values names name)'
complete -c sharectl -n '__sharectl_is destroy' -a '(__sharectl_values pools pool)'
complete -c sharectl -n '__sharectl_is revoke' -a '(__sharectl_values tokens token)'
complete -c sharectl -n '__sharectl_is drop-client' -a '(__sharectl_values clients client)'
complete -c sharectl -n '__sharectl_is end-channel' -a '(__sharectl_values channels channel)'
complete -c sharectl -l sort -x -a '(__sharectl_columns)'
complete -c sharectl -l older-than -x
complete -c sharectl -l count -x
complete -c sharectl -l name -x
complete -c sharectl -l timeout -x
complete -c sharectl -l pool -x -a '(__sharectl_values pools pool)'
complete -c sharectl -l user -x -a '(__fish_complete_users)'
complete -c sharectl -s s -l socket -r -F
sharectl --help 2>/dev/null |
    string replace -rf '^ +(?:-., |    )?--([a-z-]+) +([A-Z].*)' '$1\t$2' |
    while read -d \t option text
        complete -c sharectl -l $option -d $text
    end
