; 1: row
define internal void @body(i64 %n1, ptr noalias %p0, ptr noalias %p1, i64 %s0_1, i64 %s1_1, i64 %c0, ptr noalias %w5) nounwind noinline {
entry:
  %s1 = alloca float, i64 1
  %s11 = alloca float, i64 1
  store float 0xFFF0000000000000, ptr %s1
  %v3 = icmp slt i64 0, %n1
  br i1 %v3, label %body2, label %done2
body2:
  %i2 = phi i64 [ 0, %entry ], [ %v8, %body2 ]
  %v4 = getelementptr inbounds float, ptr %p0, i64 %i2
  %v5 = load float, ptr %v4, align 4
  %v6 = load float, ptr %s1
  %v7 = call float @llvm.maximum.f32(float %v6, float %v5)
  store float %v7, ptr %s1
  %v8 = add nuw nsw i64 %i2, 1
  %v9 = icmp slt i64 %v8, %n1
  br i1 %v9, label %body2, label %done2, !llvm.loop !0
done2:
  %v10 = load float, ptr %s1
  store float 0x8000000000000000, ptr %s11
  %v12 = trunc i64 %c0 to i32
  %v13 = bitcast i32 %v12 to float
  %v14 = call float @llvm.maximum.f32(float %v13, float %v10)
  %v16 = icmp slt i64 0, %n1
  br i1 %v16, label %body15, label %done15
body15:
  %i15 = phi i64 [ 0, %done2 ], [ %v48, %body15 ]
  %v17 = getelementptr inbounds float, ptr %p0, i64 %i15
  %v18 = load float, ptr %v17, align 4
  %v19 = fsub float %v18, %v14
  %v20 = call float @llvm.maximum.f32(float %v19, float 0xC05A000000000000)
  %v21 = call float @llvm.minimum.f32(float %v20, float 0x40562E4300000000)
  %v22 = call float @llvm.fma.f32(float %v21, float 0x3FF7154760000000, float 0x4168000000000000)
  %v23 = fsub float %v22, 0x4168000000000000
  %v24 = bitcast float %v22 to i32
  %v25 = call float @llvm.fma.f32(float %v23, float 0xBFE62E4000000000, float %v21)
  %v26 = call float @llvm.fma.f32(float %v23, float 0xBEB7F7D1C0000000, float %v25)
  %v27 = fmul float %v26, %v26
  %v28 = fmul float %v26, %v26
  %v29 = call float @llvm.fma.f32(float 0x3F8123B820000000, float %v26, float 0x3FA5558E60000000)
  %v30 = call float @llvm.fma.f32(float 0x3F56A36720000000, float %v28, float %v29)
  %v31 = call float @llvm.fma.f32(float 0x3FC5554900000000, float %v26, float 0x3FDFFFFFC0000000)
  %v32 = call float @llvm.fma.f32(float %v30, float %v28, float %v31)
  %v33 = call float @llvm.fma.f32(float %v27, float %v32, float %v26)
  %v34 = fadd float %v33, 0x3FF0000000000000
  %v35 = fcmp olt float %v19, 0x0000000000000000
  %v36 = select i1 %v35, i32 1602224128, i32 1056964608
  %v37 = shl i32 %v24, 23
  %v38 = add i32 %v37, %v36
  %v39 = bitcast i32 %v38 to float
  %v40 = select i1 %v35, float 0x3BF0000000000000, float 0x4000000000000000
  %v41 = fmul float %v34, %v39
  %v42 = fmul float %v41, %v40
  %v43 = fcmp ogt float %v19, 0x40562E4300000000
  %v44 = select i1 %v43, float 0x7FF0000000000000, float %v42
  %v45 = getelementptr inbounds float, ptr %w5, i64 %i15
  store float %v44, ptr %v45, align 4
  %v46 = load float, ptr %s11
  %v47 = fadd reassoc float %v46, %v44
  store float %v47, ptr %s11
  %v48 = add nuw nsw i64 %i15, 1
  %v49 = icmp slt i64 %v48, %n1
  br i1 %v49, label %body15, label %done15, !llvm.loop !3
done15:
  %v50 = load float, ptr %s11
  %v52 = icmp slt i64 0, %n1
  br i1 %v52, label %body51, label %done51
body51:
  %i51 = phi i64 [ 0, %done15 ], [ %v57, %body51 ]
  %v53 = getelementptr inbounds float, ptr %w5, i64 %i51
  %v54 = load float, ptr %v53, align 4
  %v55 = fdiv float %v54, %v50
  %v56 = getelementptr inbounds float, ptr %p1, i64 %i51
  store float %v55, ptr %v56, align 4
  %v57 = add nuw nsw i64 %i51, 1
  %v58 = icmp slt i64 %v57, %n1
  br i1 %v58, label %body51, label %done51, !llvm.loop !6
done51:
  ret void
}
!0 = distinct !{!0, !1, !2}
!1 = !{!"llvm.loop.vectorize.enable", i1 true}
!2 = !{!"llvm.loop.interleave.count", i32 4}
!3 = distinct !{!3, !4, !5}
!4 = !{!"llvm.loop.vectorize.enable", i1 true}
!5 = !{!"llvm.loop.interleave.count", i32 4}
!6 = distinct !{!6, !7, !8}
!7 = !{!"llvm.loop.vectorize.enable", i1 true}
!8 = !{!"llvm.loop.interleave.count", i32 4}
define void @kernel(i64 %lo, i64 %hi, ptr noalias %args, ptr noalias %buffers) nounwind {
entry:
  %v1 = load i64, ptr %args, align 8
  %v2 = getelementptr inbounds i64, ptr %args, i64 1
  %v3 = load i64, ptr %v2, align 8
  %v4 = getelementptr inbounds i64, ptr %args, i64 2
  %v5 = load i64, ptr %v4, align 8
  %v6 = getelementptr inbounds ptr, ptr %buffers, i64 %v5
  %v7 = load ptr, ptr %v6, align 8
  %v8 = getelementptr inbounds i64, ptr %args, i64 3
  %v9 = load i64, ptr %v8, align 8
  %v10 = getelementptr i8, ptr %v7, i64 %v9
  %v11 = getelementptr inbounds i64, ptr %args, i64 4
  %v12 = load i64, ptr %v11, align 8
  %v13 = getelementptr inbounds i64, ptr %args, i64 5
  %v14 = load i64, ptr %v13, align 8
  %v15 = getelementptr inbounds i64, ptr %args, i64 6
  %v16 = load i64, ptr %v15, align 8
  %v17 = getelementptr inbounds ptr, ptr %buffers, i64 %v16
  %v18 = load ptr, ptr %v17, align 8
  %v19 = getelementptr inbounds i64, ptr %args, i64 7
  %v20 = load i64, ptr %v19, align 8
  %v21 = getelementptr i8, ptr %v18, i64 %v20
  %v22 = getelementptr inbounds i64, ptr %args, i64 8
  %v23 = load i64, ptr %v22, align 8
  %v24 = getelementptr inbounds i64, ptr %args, i64 9
  %v25 = load i64, ptr %v24, align 8
  %v26 = getelementptr inbounds i64, ptr %args, i64 10
  %v27 = load i64, ptr %v26, align 8
  %s28 = alloca float, i64 %v3, align 64
  %v30 = icmp slt i64 %lo, %hi
  br i1 %v30, label %body29, label %done29
body29:
  %i29 = phi i64 [ %lo, %entry ], [ %v35, %body29 ]
  %v31 = mul nsw i64 %i29, %v12
  %v32 = getelementptr i8, ptr %v10, i64 %v31
  %v33 = mul nsw i64 %i29, %v23
  %v34 = getelementptr i8, ptr %v21, i64 %v33
  call void @body(i64 %v3, ptr %v32, ptr %v34, i64 %v14, i64 %v25, i64 %v27, ptr %s28)
  %v35 = add nuw nsw i64 %i29, 1
  %v36 = icmp slt i64 %v35, %hi
  br i1 %v36, label %body29, label %done29
done29:
  ret void
}
