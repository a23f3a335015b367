<% count = x.dtype.bytes %>\
% for size in x.shape:
<% count *= size %>\
% endfor
rt_send(deeploy_messages[${message}].peer, deeploy_messages[${message}].tag, ${x.ptr}, ${count});
