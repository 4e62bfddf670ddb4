// 4,000 small mirroring spheres over a chequered floor: a scene whose tree of objects does not fit into a cache.
#version 3.7;
global_settings { assumed_gamma 1 }
camera { location <0, 3, -9> look_at <0, 1, 0> }
light_source { <8, 12, -10> color rgb 1 }
light_source { <-10, 6, -4> color rgb 0.4 }
plane { y, 0 pigment { checker rgb 0.9, rgb 0.2 } finish { reflection 0.2 } }
#declare S = seed(1996);
#for (I, 1, 4000)
  sphere { <rand(S)*12-6, rand(S)*3, rand(S)*12-3>, 0.05 + rand(S)*0.12
    pigment { rgb <rand(S), rand(S), rand(S)> } finish { reflection 0.3 phong 0.6 } }
#end
