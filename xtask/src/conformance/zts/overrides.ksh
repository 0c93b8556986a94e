# Read at the end of two libraries of the suite's copy: what tests ask of a kernel module, answered for a server in user space. Nothing
# here decides whether a test passes.

# A tunable is a file. It has no effect on Tarn; a test that depends on the effect fails.
function set_tunable_impl # name value
{
	eval "typeset known=\$$1"
	[[ $known == UNSUPPORTED ]] && log_unsupported "tunable $1"
	[[ -z $known ]] && log_fail "tunables.cfg has no tunable $1"
	[[ -z $2 ]] && return 1
	print -r -- "$2" >$ZTS_TUNABLES/$known
}

function get_tunable_impl # name mdb missing_ok
{
	eval "typeset known=\$$1"
	if [[ $known == UNSUPPORTED || ! -e $ZTS_TUNABLES/$known ]]; then
		[[ -n $3 ]] && return 1
		[[ $known == UNSUPPORTED ]] && log_unsupported "tunable $1"
		print 0
		return 0
	fi
	cat $ZTS_TUNABLES/$known
}

# Statistics come from `tarn kstat`: scope, pool or pool/objset, statistic, 1 for the whole group.
function _kstat_linux
{
	typeset scope=$1 of=$2 wanted=$3 whole=$4 module=zfs
	if [[ $scope == dataset ]]; then
		wanted=$(printf 'objset-0x%x.%s' ${of#*/} $wanted)
		of=${of%%/*}
	fi
	[[ -n $of ]] && module=zfs/$of
	if (( whole == 1 )); then
		tarn kstat -p "$module:0:$wanted" | awk -F'[:\t]' '{print $4, $5}'
		return 0
	fi
	typeset group=${wanted%.*} name=
	[[ $wanted == *.* ]] && name=:${wanted##*.}
	typeset found=$(tarn kstat -p "$module:0:$group$name" | cut -f2)
	[[ -z $found ]] && log_fail "tarn kstat has no $module:0:$group$name"
	print -r -- "$found"
}

function _resolve_dsname_linux # pool dataset
{
	zfs get -Hpo value objsetid $2
}

# Shares are those of tarnd, which `exportfs` lists; it writes no file of exports.
function is_exported_linux # mountpoint
{
	is_shared_linux "$1"
}
