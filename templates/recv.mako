<% count = y.dtype.bytes %>\
% for size in y.shape:
<% count *= size %>\
% endfor
rt_recv(deeploy_messages[${message}].peer, deeploy_messages[${message}].tag, ${y.ptr}, ${count});
